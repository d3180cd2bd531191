"""Consumers of a feed from outside: started, killed, and asked what they have."""

import subprocess
import sys
import time
from pathlib import Path

from tests.faults import consumer
from tests.server import Server

CATCH_UP_SECONDS_MAX = 60.0


class Consumer:
    """One consumer over all lives of its process and of the server."""

    def __init__(self, kind: str, file: Path) -> None:
        self.kind = kind
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, server: Server, bucket: str) -> None:
        """Go on from what is stored, unless it runs."""
        if self._process is not None:
            return
        arguments = [server.host, str(server.port), bucket, self.kind, str(self._file)]
        command = [sys.executable, "-I", "-S", consumer.__file__, *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        if self._process is not None:
            self._process.kill()
        self.finish()

    def finish(self) -> None:
        """Wait until it has seen that the server is gone."""
        if self._process is None:
            return
        _, problem = self._process.communicate(timeout=60)
        code, self._process = self._process.returncode, None
        assert code in (0, -9), (self.kind, problem.decode())

    def wait_for(self, position: str) -> None:
        """Wait until it has everything up to a position."""
        give_up_at = time.monotonic() + CATCH_UP_SECONDS_MAX
        while self.position < position:
            assert time.monotonic() < give_up_at, (self.kind, "is at", self.position, "of", position)
            if self._process is not None and self._process.poll() is not None:
                self.finish()
            assert self._process is not None, (self.kind, "has ended")
            time.sleep(0.05)

    @property
    def position(self) -> str:
        """Where it would go on."""
        with self._file.open("rb") as file:
            file.seek(max(0, self._file.stat().st_size - 100))
            last = file.read().splitlines()[-1:]
        return last[0][1:].decode() if last and last[0].startswith(consumer.MARK) else ""

    @property
    def lines(self) -> list[bytes]:
        """All that it has taken."""
        lines = self._file.read_bytes().split(b"\n")
        return [line for line in lines if line and not line.startswith(consumer.MARK)]
