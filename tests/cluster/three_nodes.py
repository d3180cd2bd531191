"""Real servers, usually three, that are one cluster, on loopback, with a folder as their store."""

import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import httpx
from tests.etcd import etcd_path, is_free
from tests.server import Server

READY_SECONDS_MAX = 120.0
LINES_SHOWN = 40


class ClusterNode(Server):
    """A node of a cluster. Unlike a single server, it always listens at the same address."""

    def __init__(
        self,
        number: int,
        addresses: Sequence[str],
        folder: Path,
        settings: dict[str, str],
        *,
        prefix: tuple[str, ...] = (),
        movable_clock: bool = False,
        kept_log_bytes: int | None = None,
    ) -> None:
        """`addresses` are those of all nodes, as host:port, in the order of their numbers.

        With `kept_log_bytes`, trimming leaves only so many bytes of the recent log.
        """
        self.number = number
        own = addresses[number - 1]
        self.address = own
        disk = folder / f"node-{number}"
        disk.mkdir(exist_ok=True)
        super().__init__(
            disk / "data",
            settings={
                "server.node_id": str(number),
                "cluster.name": "test",
                "cluster.routes": ",".join(address for address in addresses if address != own),
                "cluster.etcd_path": etcd_path(),
                **settings,
            },
            listen=own,
            prefix=prefix,
            movable_clock=movable_clock,
        )
        if kept_log_bytes is not None:
            self._environment |= {"URSULA_TEST_KEPT_BYTES": str(kept_log_bytes), "URSULA_TESTING": "1"}
        self.earlier_lines: list[str] = []

    def start(self, ready: bool = True) -> Self:
        """Start it as any server; what it logged before stays known."""
        self.earlier_lines += self.lines
        return super().start(ready)

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
            assert self.process.poll() is None, "\n".join(self.lines[-LINES_SHOWN:])
            assert time.monotonic() < give_up_at, f"node {self.number} is not ready"
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
    named = {"cold.shared_fs": "true", "cold.root": str(folder / "store"), **named}
    addresses = [f"127.0.0.1:{port}" for port in free_blocks(count)]
    nodes = [ClusterNode(number, addresses, folder, named) for number in range(1, count + 1)]
    with running(nodes):
        yield nodes


@contextmanager
def running(nodes: Sequence[ClusterNode]) -> Iterator[None]:
    """Run all nodes of a cluster, from when all vote. After a failure, what they logged last is shown."""
    try:
        for node in nodes:
            node.start(ready=False)
        for node in nodes:
            node.wait_until_in_cluster()
        yield
    except BaseException:
        for node in nodes:
            lines = [*node.earlier_lines, *node.lines]
            errors = [line for line in lines[:-LINES_SHOWN] if '"level": "error"' in line]
            print(f"errors of node {node.number}, and its last lines:")
            print(*errors[-LINES_SHOWN:], "...", *lines[-LINES_SHOWN:], sep="\n    ", flush=True)
        raise
    finally:
        for node in nodes:
            node.kill()


def keeper_of(nodes: Sequence[ClusterNode]) -> ClusterNode | None:
    """The keeper, as the first of these nodes sees it; None if it is not one of them."""
    listed = httpx.get(f"{nodes[0].url}/cluster/status", timeout=20).json()["nodes"]
    keepers = [one["node_id"] for one in listed if one["is_keeper"]]
    return next((node for node in nodes if node.number in keepers), None)


def free_blocks(count: int) -> list[int]:
    """Ports that are free, as are the two after each: etcd listens there.

    They are not among those that the system gives to others meanwhile.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000, 4)
        if port not in found and all(map(is_free, range(port, port + 3))):
            found.append(port)
    return found
