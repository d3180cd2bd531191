"""What a run found: rows of figures, and what was asked of them. Written as JSON and read back."""

from enum import StrEnum
from statistics import median

import msgspec

OURS = "ours"


class Figure(msgspec.Struct):
    """One quantity, measured in every round for every server."""

    name: str
    unit: str = ""
    drawn: bool = True
    """Whether it is in the plot too."""
    rounds: dict[str, list[float]] = {}

    def add(self, server: str, value: float) -> None:
        """Note what a round gave."""
        self.rounds.setdefault(server, []).append(float(value))

    def of(self, server: str) -> float | None:
        """The median over the rounds, or None if the server was not measured."""
        values = self.rounds.get(server)
        return median(values) if values else None

    def ratio(self, rival: str) -> float | None:
        """What we have against what a rival has, or None if one of the two was not measured."""
        return _ratio(self.rounds.get(OURS, []), self.rounds.get(rival, []))

    def worst(self, server: str) -> float | None:
        """The largest of all rounds."""
        values = self.rounds.get(server)
        return max(values) if values else None


class Verdict(StrEnum):
    """How a check ended."""

    MET = "met"
    MISSED = "missed"
    REPORTED = "reported"
    NOT_MEASURED = "not measured"


class Check(msgspec.Struct, frozen=True):
    """Something that was asked of a figure, and what was found."""

    figure: str
    asked: str
    found: str
    verdict: Verdict


class Measurement(msgspec.Struct, frozen=True):
    """When and how rows were measured, and of which revision of ours."""

    date: str
    command: str
    revision: str
    rounds: int
    seconds: int


class Row(msgspec.Struct):
    """One kind of work."""

    key: str
    title: str
    figures: list[Figure] = []
    checks: list[Check] = []
    notes: list[str] = []
    work: str = ""
    """Its name on the command line; one such name may give several rows."""
    measurement: Measurement | None = None

    def figure(self, name: str, unit: str = "", *, drawn: bool = True) -> Figure:
        """A new figure of this row."""
        made = Figure(name, unit, drawn)
        self.figures.append(made)
        return made

    def note(self, text: str) -> None:
        """Something a reader must know; said once."""
        if text not in self.notes:
            self.notes.append(text)

    def at_least(self, figure: Figure, factor: float, rival: str, label: str) -> None:
        """Ask for so many times what a rival does."""
        ratio = figure.ratio(rival)
        self._check(figure, f"≥ {factor:g}x {label}", ratio, _times(ratio), ratio and ratio >= factor)

    def at_most(self, figure: Figure, factor: float, rival: str, label: str) -> None:
        """Ask for no more than so many times what a rival needs."""
        ratio = figure.ratio(rival)
        self._check(figure, f"≤ {factor:g}x {label}", ratio, _times(ratio), ratio and ratio <= factor)

    def report(self, figure: Figure, rival: str, label: str) -> None:
        """Say how we compare with a rival, and ask for nothing."""
        ratio = figure.ratio(rival)
        self._check(figure, f"against {label}", ratio, _times(ratio), None)

    def report_growth(self, figure: Figure, base: Figure, asked: str) -> None:
        """Say how a figure of ours compares with another of ours."""
        ratio = _growth(figure, base)
        self._check(figure, asked, ratio, _times(ratio), None)

    def growth_at_least(self, figure: Figure, factor: float, base: Figure, label: str) -> None:
        """Ask for so many times another figure of ours."""
        ratio = _growth(figure, base)
        self._check(figure, f"≥ {factor:g}x {label}", ratio, _times(ratio), ratio and ratio >= factor)

    def growth_at_most(self, figure: Figure, factor: float, base: Figure, label: str) -> None:
        """Ask for no more than so many times another figure of ours."""
        ratio = _growth(figure, base)
        self._check(figure, f"≤ {factor:g}x {label}", ratio, _times(ratio), ratio and ratio <= factor)

    def value_at_least(self, figure: Figure, limit: float) -> None:
        """Ask for a value of our own."""
        value = figure.of(OURS)
        self._check(figure, f"≥ {limit:g} {figure.unit}", value, _plain(value), value and value >= limit)

    def value_at_most(self, figure: Figure, limit: float) -> None:
        """Ask for no more than a value of our own."""
        value = figure.of(OURS)
        self._check(
            figure, f"≤ {limit:g} {figure.unit}", value, _plain(value), value is not None and value <= limit
        )

    def never(self, figure: Figure) -> None:
        """Ask for nothing of the kind in any round."""
        worst = figure.worst(OURS)
        self._check(figure, "none in any round", worst, _plain(worst), worst == 0)

    def _check(
        self, figure: Figure, asked: str, value: float | None, found: str, met: float | bool | None
    ) -> None:
        if value is None:
            verdict = Verdict.NOT_MEASURED
        elif met is None:
            verdict = Verdict.REPORTED
        else:
            verdict = Verdict.MET if met else Verdict.MISSED
        self.checks.append(Check(figure.name, asked, found, verdict))


class Run(msgspec.Struct):
    """All rows, which may have been measured by several commands."""

    machine: dict[str, str]
    versions: dict[str, str]
    rows: list[Row] = []

    def replace(self, work: str, rows: list[Row], order: list[str]) -> None:
        """Replace the rows of a kind of work; the rows of all kinds stay in order."""
        kept = [row for row in self.rows if row.work != work] + rows
        self.rows = sorted(kept, key=lambda row: order.index(row.work) if row.work in order else len(order))

    def measurements(self) -> dict[Measurement, list[str]]:
        """The kinds of work by the measurement that they come from."""
        found: dict[Measurement, list[str]] = {}
        for row in self.rows:
            if row.measurement is not None and row.work not in found.setdefault(row.measurement, []):
                found[row.measurement].append(row.work)
        return found


def number(value: float) -> str:
    """A figure with as many digits as mean something."""
    if value.is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _growth(figure: Figure, base: Figure) -> float | None:
    return _ratio(figure.rounds.get(OURS, []), base.rounds.get(OURS, []))


def _ratio(values: list[float], others: list[float]) -> float | None:
    """The median of what each round gave: the machine is a different one from minute to minute.

    Where there is not one of the other kind for each, or there was nothing of it in some round, both medians.
    """
    if not values or not others:
        return None
    if len(values) == len(others) and all(others):
        return median(value / other for value, other in zip(values, others, strict=True))
    return median(values) / median(others) if median(others) else None


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _plain(value: float | None) -> str:
    return "" if value is None else number(value)
