"""What can happen to the nodes of a cluster."""

import os
import random
import signal
import time

import httpx
from tests.cluster.three_nodes import ClusterNode


class Faults:
    """What can happen to a node."""

    def __init__(self, nodes: list[ClusterNode], seed: int) -> None:
        self._nodes = nodes
        self._random = random.Random(seed)
        self._kinds = [
            self.kill_node,
            self.kill_etcd,
            self.freeze_node,
            self.freeze_etcd,
            self.freeze_server,
            self.restart,
            self.wipe,
            self.kill_two,
            self.move_lead,
        ]

    def one(self) -> str:
        """Let one of them happen, and be over; returns its name."""
        kind = self._random.choice(self._kinds)
        node = self._random.choice(self._nodes)
        kind(node)
        for one in self._nodes:
            one.wait_until_in_cluster()
        return f"{kind.__name__} {node.number}"

    def kill_node(self, node: ClusterNode) -> None:
        """The server dies, and its etcd with it."""
        node.kill()
        time.sleep(self._random.uniform(0, 3))
        node.start(ready=False)

    def kill_two(self, node: ClusterNode) -> None:
        """No majority is left for a while."""
        others = [other for other in self._nodes if other is not node]
        for other in others:
            other.kill()
        time.sleep(self._random.uniform(0, 2))
        for other in others:
            other.start(ready=False)

    def kill_etcd(self, node: ClusterNode) -> None:
        """Only its etcd dies."""
        os.kill(node.etcd, signal.SIGKILL)
        time.sleep(self._random.uniform(0, 2))

    def freeze_node(self, node: ClusterNode) -> None:
        """Everything stands still, with all connections open."""
        self._freeze([node.process.pid, node.etcd])

    def freeze_etcd(self, node: ClusterNode) -> None:
        """Its etcd stands still."""
        self._freeze([node.etcd])

    def freeze_server(self, node: ClusterNode) -> None:
        """The server stands still, and its etcd goes on."""
        self._freeze([node.process.pid])

    def restart(self, node: ClusterNode) -> None:
        """A planned restart."""
        assert node.stop() == 0
        node.start(ready=False)

    def wipe(self, node: ClusterNode) -> None:
        """Its disk is lost."""
        node.kill()
        node.wipe()
        time.sleep(self._random.uniform(0, 1))
        node.start(ready=False)

    def move_lead(self, node: ClusterNode) -> None:
        """Another node leads."""
        httpx.post(f"{node.url}/cluster/transfer-leader", timeout=20)

    def _freeze(self, processes: list[int]) -> None:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(self._random.choice((0.5, 3, 8)))
        for process in processes:
            os.kill(process, signal.SIGCONT)
