"""File systems of our own: a mount namespace in which a folder is a small tmpfs or read-only.

It lives as long as its holder, so that a server can be started in it again and again.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS_MAX = 60.0


class Forbidden(Exception):
    """This machine lets nobody make namespaces."""


class Namespace:
    """A mount namespace made by a few shell commands, each given the folder as $1."""

    def __init__(self, folder: Path, *mounts: str) -> None:
        self._folder = folder
        script = " && ".join([*mounts, "echo ready", "exec sleep 600"])
        command = ["unshare", "-rm", "sh", "-c", script, "sh", str(folder)]
        try:
            self._holder = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError as error:
            raise Forbidden(str(error)) from None
        if self._holder.stdout is None or self._holder.stdout.readline() != "ready\n":
            _, problem = self._holder.communicate(timeout=START_SECONDS_MAX)
            raise Forbidden(problem.strip())

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that it runs inside."""
        return ("nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials")

    @property
    def folder(self) -> Path:
        """The folder inside, as it is reached from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self._folder}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.communicate()
