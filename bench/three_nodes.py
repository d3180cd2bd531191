"""Three nodes that act as one server, ours or Rust Ursula's. They can be killed and started again."""

import random
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import kill
from pathlib import Path

from . import rust
from .process import Process
from .servers import OURS, RUST, Kind, Server, await_ready, create_bucket, scratch_folder, start_process

COUNT = 3
START_SECONDS = 120.0

_READY = "/readyz/cluster"
_ETCD = Path(sys.prefix) / "etcd" / "usr" / "bin" / "etcd"


def missing() -> str | None:
    """Why three nodes of ours cannot be started here, or None."""
    return None if _ETCD.exists() else "etcd is not unpacked (make bench does it)"


THREE_OURS = replace(OURS, ready=_READY, missing=missing)
THREE_RUST = RUST


class Node:
    """One of the three, which may be stopped and started again."""

    def __init__(self, kind: Kind, ports: Sequence[int], number: int, folder: Path) -> None:
        self.number = number
        self._kind = _node_kind(kind, ports, number, folder)
        self._port = ports[number - 1]
        self._folder = folder
        self._process: Process | None = None
        self._started_at = 0.0

    def start(self) -> None:
        """Start its process."""
        self._started_at = time.perf_counter()
        name = f"{self.number}"
        self._process = start_process(
            self._kind, self._port, self._folder / name, self._folder / f"{name}-output"
        )

    def wait(self) -> Server:
        """Wait until it is a ready part of the cluster."""
        await_ready(self._kind, self._port, self.process, START_SECONDS)
        return Server(self._kind, self._port, self.process, time.perf_counter() - self._started_at)

    @property
    def process(self) -> Process:
        """Its process, which must have been started."""
        if self._process is None:
            raise RuntimeError("the node was not started")
        return self._process

    def kill_etcd(self) -> None:
        """Kill only its etcd."""
        for child in self.process.children:
            kill(child, signal.SIGKILL)


@contextmanager
def three_nodes(kind: Kind) -> Iterator[tuple[list[Node], list[Server]]]:
    """Three new nodes with an empty store, ready, until the block ends."""
    with scratch_folder() as folder:
        ports = _free_ports()
        nodes = [Node(kind, ports, number, folder) for number in range(1, COUNT + 1)]
        try:
            for node in nodes:
                node.start()
            servers = [node.wait() for node in nodes]
            create_bucket(servers[0])
            yield nodes, servers
        finally:
            for node in nodes:
                node.process.stop()


def _node_kind(kind: Kind, ports: Sequence[int], number: int, folder: Path) -> Kind:
    """The kind of server that this node is."""
    if kind is THREE_RUST:
        return replace(kind, command=lambda port, data: rust.command(ports, number, data))
    return kind.with_settings(
        server__node_id=str(number),
        cluster__name="bench",
        cluster__routes=",".join(f"127.0.0.1:{port}" for port in ports if port != ports[number - 1]),
        cluster__etcd_path=str(_ETCD),
        cold__shared_fs="true",
        cold__root=str(folder / "store"),
    )


def _free_ports() -> list[int]:
    """Ports that are free, as are the two after each, where our nodes have their etcd."""
    found: list[int] = []
    while len(found) < COUNT:
        port = random.randrange(20_000, 32_000, 4)
        if port not in found and all(map(_is_free, range(port, port + 3))):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
