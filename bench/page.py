"""The page in docs/: made from the result of a run, never written by hand."""

from pathlib import Path

from .lines import lines, measured_kinds
from .results import Measurement, Run

_HEAD = """\
# Benchmarks

The performance of the server compared with others, on one machine. `make bench` measures all rows again and
rewrites this page; `make bench ARGS='--rows append,read --update'` measures some rows and keeps the others.

- **ours** is the server as `ursula serve` starts it: every write is synced to disk before it is acknowledged.
- **reference** is `@durable-streams/server` from npm, with files and in memory (where nothing is durable).
- **Electric** is `durable-streams-server` (`cargo install durable-streams`) with default durability: a log
  with group commit and fdatasync.
- **Rust Ursula** is one node with `raft.wal.fsync = "always"` and no limit on hot data.
- **bare HTTP layer** is the upper bound: our HTTP layer with a handler that returns the headers of an append
  and stores nothing.
"""


def page(run: Run, plot: str) -> str:
    """The page in Markdown."""
    return "\n".join(
        (
            _HEAD,
            f"![Bar charts of each workload, with one bar per server]({plot})\n",
            *_table(run),
            "",
            *_notes(run),
            "## How it was measured\n",
            "Every server is restarted for every round, with an empty folder on a real disk, and warmed",
            "up for 1 s. The servers of a row alternate, and the table shows the medians over the rounds. A",
            "ratio is ours divided by theirs in the same round; the table shows the median ratio, which need",
            "not equal the ratio of the medians.\n",
            *(_measurement(found, works) for found, works in run.measurements().items()),
            "",
            *_list("Machine", run.machine),
            *_list("Versions", run.versions),
        )
    )


def _measurement(found: Measurement, works: list[str]) -> str:
    return (
        f"- {', '.join(works)}: on {found.date}, revision {found.revision}, with `{found.command}`: "
        f"{found.rounds} rounds of {found.seconds} s."
    )


def write(run: Run, file: Path) -> None:
    """The page beside the JSON and the plot of the same name."""
    file.with_suffix(".md").write_text(page(run, file.with_suffix(".svg").name))


def _table(run: Run) -> list[str]:
    kinds = measured_kinds(run)
    heads = ["workload", "figure", *(kind.label for kind in kinds), "target", "result", ""]
    rule = ["---", "---", *("---:" for _ in kinds), "---", "---:", "---"]
    rows = [[line.work, line.figure, *line.values, *line[3:]] for line in lines(run, kinds)]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]


def _notes(run: Run) -> list[str]:
    notes = [f"- {row.key}: {note}" for row in run.rows for note in row.notes]
    return [*notes, ""] if notes else []


def _list(title: str, values: dict[str, str]) -> list[str]:
    return [f"{title}: {', '.join(f'{name} {value}' for name, value in values.items())}.\n"]
