"""`python -m bench`: measure, print the table, and write it down in docs/."""

import resource
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from . import page, plot
from .failure import Failed
from .machine import machine, versions
from .progress import Shown
from .results import Measurement, Row, Run
from .rounds import Plan
from .rows import ROWS
from .servers import HERE, SCRATCH
from .table import print_table

DOCS = HERE.parent / "docs" / "benchmarks.json"
WIDTH_MIN = 170


def bench(
    rows: Annotated[str, typer.Option(help=f"Rows to measure, of {','.join(ROWS)}.")] = ",".join(ROWS),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the table has their medians.")] = 5,
    seconds: Annotated[int, typer.Option(min=1, help="How long each load is measured.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="One round of 2 s, to try it.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="JSON to write, with the page and the plot beside it; docs/ in a whole run."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Replace these rows in docs/, and keep the others there.")
    ] = False,
) -> None:
    """Measure the server against its rivals. A missed figure is reported, not an error."""
    wanted = [name.strip() for name in rows.split(",")]
    if unknown := [name for name in wanted if name not in ROWS]:
        raise typer.BadParameter(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if quick:
        rounds, seconds = 1, 2
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_MIN)
    _raise_file_limit()
    whole = wanted == list(ROWS) and not quick
    file = out or (DOCS if whole or update else None)
    run = Run(machine(), versions())
    written = _read(file) if file is not None and update else None
    rows_before = [] if written is None else written.rows
    kept = Run(run.machine, run.versions, [row for row in rows_before if row.work in ROWS])
    measurement = Measurement(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        command=_command(),
        revision=run.versions["revision"],
        rounds=rounds,
        seconds=seconds,
    )
    try:
        with Shown(console) as progress:
            plan = Plan(rounds, seconds, progress, quick)
            for name in wanted:
                found = _measure(name, plan)
                for row in found:
                    row.work, row.measurement = name, measurement
                run.rows += found
                kept.replace(name, found, list(ROWS))
                if file is not None:
                    _write(kept, file)  # after each row: nothing is lost if the run is interrupted
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    print_table(console, run)


def _read(file: Path) -> Run | None:
    """The rows that were written before; None if there are none, or only ones of an earlier form."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Run)
    except (OSError, msgspec.MsgspecError):
        return None


def _measure(name: str, plan: Plan) -> list[Row]:
    work = ROWS[name]
    if reason := work.missing():
        return [Row(name, name, notes=[f"not measured: {reason}"])]
    try:
        return work.measure(plan)
    except Failed as failure:
        return [Row(name, name, notes=[f"not measured: {failure}"])]


def _command() -> str:
    """What to type to have this run again."""
    arguments = " ".join(sys.argv[1:])
    return f"make bench ARGS='{arguments}'" if arguments else "make bench"


def _write(run: Run, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    plot.draw(run, file.with_suffix(".svg"))
    page.write(run, file)


def _raise_file_limit() -> None:
    """A thousand subscribers are a thousand files, here and in what is started from here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    typer.run(bench)
