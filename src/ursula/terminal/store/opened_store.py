"""A store that is open while a command runs: how users name it, and how its errors are shown."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ..output import INTERRUPTED, fail

if TYPE_CHECKING:
    from ursula.cold.objects.store import Store
    from ursula.config import Settings
    from ursula.engine.offline.restore import Moment

T = TypeVar("T")

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file, for access to S3. [dim]Default: as for ursula serve[/dim]",
        metavar="FILE",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME|POSITION",
        help="As of 2030-01-01T12:00:00Z, '2h ago', or a position. [dim]Default: the last flush[/dim]",
        show_default=False,
    ),
]


def settings_of(config: Path | None, data_dir: Path | None = None) -> "Settings":
    """The settings from the file and the environment that a server with this data folder would have."""
    from ursula.config import load

    return load(config, os.environ, {"server.data_dir": None if data_dir is None else str(data_dir)}).settings


def moment_of(text: str | None) -> "Moment | None":
    """The moment that --at names."""
    from ursula.engine.offline.restore import parse_moment

    try:
        return None if text is None else parse_moment(text, time.time_ns() // 1000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from None


def with_store(where: str, settings: "Settings", work: "Callable[[Store], Awaitable[T]]") -> T:
    """Run some work on a store; an error ends the command with one line and an exit code."""
    from ursula.cold.objects.open import open_at
    from ursula.cold.objects.store import StoreFailed
    from ursula.engine.offline.restore import RestoreRefused
    from ursula.engine.start.data_folder import FolderRefused
    from ursula.engine.start.load_state import StoreRefused

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
