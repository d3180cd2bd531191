"""Real servers, usually three, that are one cluster, on loopback, with a folder as their store."""

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from tests.etcd import etcd_path
from tests.server import Server

READY_SECONDS_MAX = 120.0


class ClusterNode(Server):
    """A node of a cluster. Unlike a single server, it always listens on the same port."""

    def __init__(self, number: int, ports: list[int], folder: Path, settings: dict[str, str]) -> None:
        self.number = number
        routes = [f"127.0.0.1:{port}" for place, port in enumerate(ports, 1) if place != number]
        self.given = {
            "server.node_id": str(number),
            "cluster.name": "test",
            "cluster.routes": ",".join(routes),
            "cluster.etcd_path": etcd_path(),
            "cold.shared_fs": "true",
            "cold.root": str(folder / "store"),
            **settings,
        }
        super().__init__(
            folder / f"node-{number}", settings=self.given, listen=f"127.0.0.1:{ports[number - 1]}"
        )

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.data_dir)

    @property
    def etcd(self) -> int:
        """The process of its etcd, as soon as there is one."""
        command = ["pgrep", "--parent", str(self.process.pid)]
        while not (found := subprocess.run(command, capture_output=True, text=True).stdout.split()):
            time.sleep(0.05)
        return int(found[0])

    def wait_until_in_cluster(self) -> None:
        """Wait until its member votes, and it serves."""
        give_up_at = time.monotonic() + READY_SECONDS_MAX
        while True:
            with suppress(httpx.HTTPError):
                answer = httpx.get(f"{self.url}/readyz/cluster", timeout=5)
                if answer.status_code == 200:
                    return
            assert self.process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < give_up_at, "\n".join(self.lines[-20:])
            time.sleep(0.05)


@contextmanager
def three_nodes(folder: Path, **settings: str) -> Iterator[list[ClusterNode]]:
    """Three nodes of one cluster, all of them voters. `settings` are named like cold__flush_size."""
    with cluster_of(3, folder, **settings) as nodes:
        yield nodes


@contextmanager
def cluster_of(count: int, folder: Path, **settings: str) -> Iterator[list[ClusterNode]]:
    """As many nodes of one cluster, all of them voters."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    ports = free_blocks(count)
    nodes = [ClusterNode(number, ports, folder, named) for number in range(1, count + 1)]
    try:
        for node in nodes:
            node.start(ready=False)
        for node in nodes:
            node.wait_until_in_cluster()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def free_blocks(count: int) -> list[int]:
    """Ports that are free, as are the two after each: etcd listens there.

    They are not among those that the system gives to others meanwhile.
    """
    found: list[int] = []
    while len(found) < count:
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
