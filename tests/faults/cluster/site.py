"""Three nodes on a network of their own, with S3 as their store; one of them has a small disk of its own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tests.cluster.three_nodes import ClusterNode, running
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.faults.cluster.network import STORE_HOST, Network
from tests.http.raw import Place

from ursula.engine.failures import FELL_BEHIND

NODES = 3
PORT = 4437
DISK_BYTES = 1 << 30
MOUNT_FAILED = 32
SETTINGS = {
    "cluster.secret": "a secret that is long enough",
    "cold.backend": "s3",
    "cold.s3_bucket": "faults",
    "cold.s3_access_key_id": ACCESS_KEY_ID,
    "cold.s3_secret_access_key": SECRET_ACCESS_KEY,
    "cold.flush_size": "64KiB",
    "cold.flush_interval": "1s",
    "cluster.log_bytes": "32KiB",
}
"""Flushes happen every second, and with them the log is trimmed."""


class Disk:
    """A file system in memory that can be full."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
        self.free()

    def fill(self) -> None:
        """Leave no room, without writing anything."""
        while not self._resize(self._used_bytes):
            pass  # more was written meanwhile

    def free(self) -> None:
        """Make room."""
        assert self._resize(DISK_BYTES)

    @property
    def _used_bytes(self) -> int:
        found = os.statvfs(self._folder)
        return (found.f_blocks - found.f_bfree) * found.f_bsize

    def _resize(self, size: int) -> bool:
        """Change its size; returns False if it holds more than that."""
        command = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        finished = subprocess.run(command, capture_output=True, text=True)
        assert finished.returncode in (0, MOUNT_FAILED), finished.stderr
        return finished.returncode == 0


class Site(NamedTuple):
    """Everything that may fail."""

    nodes: list[ClusterNode]
    network: Network
    store: Seaweed
    disk: Disk
    """That of the last node."""

    @property
    def addresses(self) -> list[Place]:
        """Where clients find the nodes, which are not always there."""
        return [Place(self.network.host(node.number), PORT) for node in self.nodes]

    @property
    def trimmed(self) -> int:
        """Up to where the log is trimmed, as far as any node knows."""
        return max(int(status_of(node)["purged_index"]) for node in self.nodes)

    @property
    def fell_behind(self) -> int:
        """How often a node lacked entries of the log, and started again from the store."""
        return sum(FELL_BEHIND in line for node in self.nodes for line in (*node.earlier_lines, *node.lines))


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Begin a cluster, whose nodes all vote."""
    network = Network(NODES)
    with Seaweed(folder / "seaweed", STORE_HOST) as store:
        settings = SETTINGS | {"cold.s3_endpoint": store.endpoint, "cold.root": folder.name}
        store.bucket(settings["cold.s3_bucket"])
        numbers = range(1, NODES + 1)
        addresses = [f"{network.host(number)}:{PORT}" for number in numbers]
        nodes = [
            ClusterNode(
                number,
                addresses,
                folder,
                settings,
                prefix=network.prefix(number),
                movable_clock=True,
                kept_log_bytes=0,
            )
            for number in numbers
        ]
        disk = Disk(nodes[-1].data_dir.parent)
        nodes[-1].pass_time(0)  # its clock is a file on that disk
        with running(nodes):
            yield Site(nodes, network, store, disk)


def status_of(node: ClusterNode) -> dict[str, Any]:
    """What a node says of the cluster."""
    found: dict[str, Any] = httpx.get(f"{node.url}/cluster/status", timeout=20).json()
    return found
