"""A child process: started, waited for, measured and stopped by its id."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 15.0

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process:
    """A running child whose output goes to a file."""

    def __init__(self, command: Sequence[str], output: Path, environment: Mapping[str, str]) -> None:
        self._output = output
        with output.open("wb") as file:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment)
            )
        self.pid = self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self._child.poll() is None

    @property
    def children(self) -> list[int]:
        """The processes that it has started, by id."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def cpu_seconds(self) -> float:
        """Processor time of all its threads and its children so far, in the programs and in the kernel."""
        ticks = 0
        for pid in (self.pid, *self.children):
            # The name in parentheses may hold spaces; what follows it may not.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def resident_bytes_max(self) -> int:
        """The most memory that it ever held."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))

    def last_words(self) -> str:
        """The last line that it wrote."""
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """End it: asked first, then made to."""
        if not self.alive:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
