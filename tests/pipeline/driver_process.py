"""A Spark driver in its own process, with its own Java, so that it can be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
MOMENT_SECONDS_MAX = 300.0
END_SECONDS_MAX = 30.0


class Driver:
    """A Python program, its Java and its workers, which share a session id of the operating system."""

    def __init__(self, output: Path, *arguments: str) -> None:
        """Its output goes to a file, and what Spark needs on disk is beside that file."""
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "SPARK_LOCAL_DIRS": str(output.parent / "local")},
                cwd=ROOT,
                start_new_session=True,
            )

    def kill_when(self, has_come: Callable[[], bool]) -> None:
        """Kill it when a condition holds, which must be the case before it ends."""
        give_up_at = time.monotonic() + MOMENT_SECONDS_MAX
        while not has_come():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise AssertionError(f"it was not killed, and said: {self._output.read_text()[-4000:]}")
            time.sleep(0.0005)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the program and its Java at once. Workers end soon by themselves."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        give_up_at = time.monotonic() + END_SECONDS_MAX
        while left := _session(self._process.pid):
            if time.monotonic() > give_up_at:
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                raise TimeoutError(f"{len(left)} workers have outlived their driver")
            time.sleep(0.01)


def _session(number: int) -> list[int]:
    """The processes of a session that are still alive."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == number and state not in ("Z", "X"):
                    found.append(int(folder.name))
    return found
