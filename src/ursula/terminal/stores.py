"""A store for the time of a command that needs no server: how it is named, and how its errors are told."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self, TypeVar

import typer

from .output import fail, say
from .session import INTERRUPTED

if TYPE_CHECKING:
    from ursula.cold.objects.store import Store
    from ursula.config import Settings
    from ursula.engine.offline.restore import Moment

T = TypeVar("T")

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file, for how S3 is reached. [dim]Default: as for ursula serve[/dim]",
        metavar="FILE",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME|POSITION",
        help="As it was then: 2030-01-01T12:00:00Z, '2h ago', a position. [dim]Default: the last flush[/dim]",
        show_default=False,
    ),
]


def settings_of(config: Path | None, data_dir: Path | None = None) -> "Settings":
    """The settings of the file and the environment, as a server in this data folder would have them."""
    from ursula.config import load

    return load(config, os.environ, {"server.data_dir": None if data_dir is None else str(data_dir)}).settings


def moment_of(text: str | None) -> "Moment | None":
    """What --at says."""
    from ursula.engine.offline.restore import parse_moment

    try:
        return None if text is None else parse_moment(text, time.time_ns() // 1000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from None


def with_store(where: str, settings: "Settings", work: "Callable[[Store], Awaitable[T]]") -> T:
    """Do something with the store at a place; errors end the command with one line and an exit code."""
    from ursula.cold.objects.open import open_at
    from ursula.cold.objects.store import StoreFailed
    from ursula.engine.data_folder import FolderRefused
    from ursula.engine.load_state import StoreRefused
    from ursula.engine.offline.restore import RestoreRefused

    async def run() -> T:
        store = open_at(where, settings.cold)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except (StoreFailed, FolderRefused, RestoreRefused, StoreRefused) as error:
        fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


LINE_SECONDS = 10.0


class Shown:
    """Progress on standard error: a bar on a terminal, elsewhere lines.

    There is a line for each kind of work, and now and then one that says how much of it is done.
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
        """So much of it is done."""
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
