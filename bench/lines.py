"""The lines of the table, the same on the terminal and on the page."""

from collections.abc import Iterator
from typing import NamedTuple

from .results import Figure, Row, Run, number
from .servers import KINDS, Kind


class Line(NamedTuple):
    """One line: a figure with a value for each server, and one thing that was asked of it."""

    work: str
    figure: str
    values: tuple[str, ...]
    asked: str = ""
    found: str = ""
    verdict: str = ""


def measured_kinds(run: Run) -> list[Kind]:
    """The servers that a column is needed for."""
    measured = {name for row in run.rows for figure in row.figures for name in figure.rounds}
    return [kind for kind in KINDS if kind.name in measured]


def lines(run: Run, kinds: list[Kind]) -> Iterator[Line]:
    """All lines; what would be repeated from the line above is left empty."""
    for row in run.rows:
        title = row.title
        for figure in row.figures:
            for line in _lines_of(row, figure, kinds):
                yield line._replace(work=title)
                title = ""
        if title:
            yield Line(title, "not measured", ("",) * len(kinds))


def _lines_of(row: Row, figure: Figure, kinds: list[Kind]) -> Iterator[Line]:
    values = tuple(_value(figure, kind) for kind in kinds)
    name = f"{figure.name}, {figure.unit}" if figure.unit else figure.name
    checks = [check for check in row.checks if check.figure == figure.name]
    if not checks:
        yield Line("", name, values)
    for check in checks:
        yield Line("", name, values, check.asked, check.found, check.verdict.value)
        name, values = "", ("",) * len(kinds)


def _value(figure: Figure, kind: Kind) -> str:
    value = figure.of(kind.name)
    return "" if value is None else number(value)
