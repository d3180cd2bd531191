"""Three nodes behind one address, for tests that were written for one server.

With `URSULA_TEST_NODES=3` the fixtures of `tests/conftest.py` start these instead of single servers. A test
that needs what only a single server has is marked with `one_node`, and why.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.cluster.spread import spread_over
from tests.cluster.three_nodes import ClusterNode, free_blocks
from tests.server import Server

NODES = 3
OF_THIS_MACHINE = (
    "or newer is recommended",
    "etcd does not answer",
    "etcd answers again",
    "is silent: following",
    "the clock of this node jumped ahead",
    "the clock of this node is still being compared",
)
"""Warnings of the version of the tests' etcd, of members that a busy machine has held up for seconds, and of
clocks that tests have moved."""


def any_server(
    data_dir: Path,
    *flags: str,
    settings: Mapping[str, str] | None = None,
    movable_clock: bool = False,
) -> Server:
    """A server, or three nodes that act as one."""
    kind = SpreadServer if is_spread() else Server
    return kind(data_dir, *flags, settings=settings, movable_clock=movable_clock)


def is_spread() -> bool:
    """Whether the tests run with three nodes."""
    return os.environ.get("URSULA_TEST_NODES") == str(NODES)


class SpreadServer(Server):
    """Three nodes in a folder, and a proxy that gives each request to the next one."""

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        settings: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        super().__init__(data_dir, *flags, settings=settings)
        data_dir.mkdir(exist_ok=True)
        given = {"cold.shared_fs": "true", "cold.root": str(data_dir / "cold"), **(settings or {})}
        addresses = [f"127.0.0.1:{port}" for port in free_blocks(NODES)]
        self.nodes = [
            ClusterNode(number, addresses, data_dir, given, movable_clock=movable_clock)
            for number in range(1, NODES + 1)
        ]
        for node in self.nodes:
            node._command += flags
        self._proxy = ExitStack()

    def start(self, ready: bool = True) -> Self:
        """Start all nodes, and wait until each is a ready part of the cluster."""
        for node in self.nodes:
            node.start(ready=False)
        if ready:
            self.wait_until_ready()
        self.lines = []
        url = self._proxy.enter_context(spread_over([node.port for node in self.nodes]))
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        return self

    def wait_until_ready(self) -> None:
        """Wait until each node is a ready part of the cluster."""
        for node in self.nodes:
            node.wait_until_in_cluster()

    def pass_time(self, seconds: float) -> None:
        """Move the clocks of all nodes forward, and wait until they have compared them."""
        self._passed_seconds += seconds
        for node in self.nodes:
            node.pass_time(seconds)
        self.wait_until_ready()

    @property
    def log(self) -> list[dict[str, Any]]:
        """What all nodes have logged, one after the other."""
        return [entry for node in self.nodes for entry in node.log]

    def complaints(self) -> list[dict[str, Any]]:
        """What a node logged that nobody should have to read, except what this machine is to blame for."""
        found = super().complaints()
        return [entry for entry in found if not any(text in entry["message"] for text in OF_THIS_MACHINE)]

    def stop(self) -> int:
        """SIGTERM for one after the other; the highest exit code."""
        code = max(node.stop() for node in reversed(self.nodes))
        self._proxy.close()  # not before: clients that wait get their answers
        return code

    def kill(self) -> int:
        """SIGKILL for all that still run; the lowest exit code."""
        code = min(node.kill() for node in self.nodes)
        self._proxy.close()
        return code
