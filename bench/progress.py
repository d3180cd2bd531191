"""How far a run has come: a moving bar on a terminal, a line per step elsewhere."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Shown:
    """Shows the steps of a run, one row of the table after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=console)
        self._bar: TaskID | None = None
        self._title = ""
        self._started = False

    def __enter__(self) -> "Shown":
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()
        self._bars.stop()

    def begin(self, title: str, steps: int) -> None:
        """A new row."""
        self._finish()
        self._title = title
        self._started = False
        self._bar = self._bars.add_task(title, total=steps)

    def step(self, text: str) -> None:
        """The next measurement of this row begins."""
        if self._bar is None:
            return
        if self._started:
            self._bars.advance(self._bar)
        self._started = True
        self._bars.update(self._bar, description=f"{self._title} [dim]({text})[/]")
        if not self._console.is_terminal:
            self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True)

    def _finish(self) -> None:
        if self._bar is not None:
            total = self._bars.tasks[self._bars.task_ids.index(self._bar)].total
            self._bars.update(self._bar, description=self._title, completed=total or 0)
