"""The processes of the nodes, which start together, end together, and die with the command."""

import http.client
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from .layout import HOST, DevNode, DevRefused

STOP_SECONDS_MAX = 15.0
POLL_SECONDS = 0.1
ANSWER_SECONDS_MAX = 2.0


class NodeEnded(Exception):
    """A node has ended by itself."""

    def __init__(self, node: DevNode, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"node {node.number} {how}")
        self.node = node


class NodeProcess:
    """A node that runs `ursula serve`."""

    def __init__(self, node: DevNode) -> None:
        self.node = node
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise DevRefused("a cluster needs the program setpriv: install the package util-linux")
        with node.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(setpriv, "--pdeathsig", "TERM", "--"),
                    *(sys.executable, "-m", "ursula", "serve", "--config", str(node.config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the command, which then stops all of them
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    @property
    def is_ready(self) -> bool:
        """Whether it is a ready part of the cluster. Raises NodeEnded if it has ended."""
        if (code := self.exit_code) is not None:
            raise NodeEnded(self.node, code)
        connection = http.client.HTTPConnection(HOST, self.node.port, timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("GET", "/readyz/cluster")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def end(self) -> None:
        """Ask it to stop."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, and kill it if that takes too long."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(nodes: Sequence[DevNode]) -> Iterator[list[NodeProcess]]:
    """Run all nodes until the block ends."""
    processes: list[NodeProcess] = []
    try:
        for node in nodes:
            processes.append(NodeProcess(node))
        yield processes
    finally:
        give_up_at = time.monotonic() + STOP_SECONDS_MAX
        for process in processes:
            process.end()
        for process in processes:
            process.wait(give_up_at - time.monotonic())
