"""The table on the terminal."""

from rich.console import Console
from rich.table import Table

from .lines import lines, measured_kinds
from .results import Run, Verdict

_STYLES = {Verdict.MET: "green", Verdict.MISSED: "bold red", Verdict.NOT_MEASURED: "yellow"}


def print_table(console: Console, run: Run) -> None:
    """Figures, ratios, what is asked, and whether it is met."""
    kinds = measured_kinds(run)
    titles = [f"median of {found.rounds}, {found.seconds} s each" for found in run.measurements()]
    table = Table(title=", ".join(dict.fromkeys(titles)), title_justify="left", show_lines=False)
    table.add_column("workload", max_width=34)
    table.add_column("figure")
    for kind in kinds:
        table.add_column(kind.label, justify="right")
    table.add_column("target")
    table.add_column("result", justify="right")
    table.add_column("")
    for line in lines(run, kinds):
        if line.work and table.row_count:
            table.add_section()
        style = _STYLES.get(Verdict(line.verdict), "") if line.verdict else ""
        verdict = f"[{style}]{line.verdict}[/]" if style else line.verdict
        table.add_row(line.work, line.figure, *line.values, line.asked, line.found, verdict)
    console.print(table)
    for row in run.rows:
        for note in row.notes:
            console.print(f"{row.key}: {note}", highlight=False, markup=False)
