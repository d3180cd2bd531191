"""The progress of a long command, on standard error."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from .output import say

LINE_SECONDS = 10.0


class ProgressDisplay:
    """Progress on standard error: a bar on a terminal, lines elsewhere.

    There is a line when each kind of work begins, and one with the percentage every `LINE_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._is_terminal = sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self._is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._what = ""
        self._clock = clock
        self._next_line = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of this kind of work are done."""
        if not self._is_terminal:
            self._say(what, done, total)
        self._what = what
        self._progress.update(self._task, description=what, completed=done, total=total or None)

    def _say(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if what == self._what and now < self._next_line:
            return
        self._next_line = now + LINE_SECONDS
        say(f"{what} ..." if what != self._what or not total else f"{what} ... {100 * done // total}%")
