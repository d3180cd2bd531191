"""What can happen to the nodes of a cluster, to the network between them, and to their store."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import httpx
from tests.cluster.three_nodes import ClusterNode
from tests.faults.cluster.site import Site, status_of
from tests.faults.rounds import IS_LONG

Fault = Callable[[ClusterNode], None]

SLOW_KINDS_MAX = 9 if IS_LONG else 3
"""How many kinds that take long happen in a round."""

FREEZE_SECONDS = 8.0
LONG_FREEZE_SECONDS = 40.0
LEASE_SECONDS = 5.0
"""After this another node is the keeper."""


class Faults:
    """Faults at random, one at a time."""

    def __init__(self, place: Site, random: Random) -> None:
        self._nodes = place.nodes
        self._network = place.network
        self._store = place.store
        self._disk = place.disk
        self._random = random
        self.count = 0
        self._quick: list[Fault] = [
            self.kill_node,
            self.kill_etcd,
            self.freeze_etcd,
            self.freeze_server,
            self.cut_off,
            self.cut_off_leader,
            self.mute,
            self.deafen,
            self.fill_disk,
            self.wipe_bootstrap_node,
            self.freeze_store,
            self.cut_off_store,
            self.start_with_wrong_clock,
            self.set_clock,
            self.restart,
            self.move_lead,
        ]
        self._slow: list[Fault] = [
            self.kill_two,
            self.kill_all,
            self.freeze_node,
            self.freeze_keeper_in_flush,
            self.slow_down,
            self.wipe,
            self.wipe_while_cut_off,
            self.stop_store,
            self.restart_all,
        ]

    def happen(self) -> Iterator[str]:
        """Let each quick kind happen once, and some of the slow ones; says which before it happens."""
        chosen = self._quick + self._random.sample(self._slow, SLOW_KINDS_MAX)
        began_at = time.monotonic()
        for kind in self._random.sample(chosen, len(chosen)):
            node = self._random.choice(self._nodes)
            self.count += 1
            passed = time.monotonic() - began_at
            yield f"{self.count}, after {passed:.1f} s: {kind.__name__}, node {node.number}"
            kind(node)
            self._network.mend()
            for one in self._nodes:
                one.wait_until_in_cluster()
            self._wait(0, 1)

    # Processes

    def kill_node(self, node: ClusterNode) -> None:
        """The server dies, and its etcd with it."""
        self._kill_and_start([node])

    def kill_two(self, node: ClusterNode) -> None:
        """No majority is left for a while."""
        self._kill_and_start([other for other in self._nodes if other is not node])

    def kill_all(self, node: ClusterNode) -> None:
        """Nothing is left but disks and the store."""
        self._kill_and_start(self._nodes)

    def kill_etcd(self, node: ClusterNode) -> None:
        """Only its etcd dies."""
        os.kill(node.etcd, signal.SIGKILL)
        self._wait(0, 2)

    def freeze_node(self, node: ClusterNode) -> None:
        """Everything stands still, with all connections open."""
        self._freeze([node.process.pid, node.etcd], self._freeze_seconds())

    def freeze_etcd(self, node: ClusterNode) -> None:
        """Its etcd stands still."""
        self._freeze([node.etcd], self._freeze_seconds())

    def freeze_server(self, node: ClusterNode) -> None:
        """The server stands still, and its etcd goes on."""
        self._freeze([node.process.pid], self._freeze_seconds())

    def freeze_keeper_in_flush(self, node: ClusterNode) -> None:
        """The keeper stands still while it writes to the store, until after another one has taken over."""
        keeper = self._node_that("is_keeper")
        os.kill(self._store.process.pid, signal.SIGSTOP)
        try:
            flushing = threading.Thread(target=self._ask, args=(keeper, "/cluster/flush"))
            flushing.start()
            self._wait(0.5, 1.5)
            os.kill(keeper.process.pid, signal.SIGSTOP)
        finally:
            os.kill(self._store.process.pid, signal.SIGCONT)
        self._wait(LEASE_SECONDS + 1, LEASE_SECONDS + 3)
        os.kill(keeper.process.pid, signal.SIGCONT)
        flushing.join()

    def restart(self, node: ClusterNode) -> None:
        """A planned restart."""
        assert node.stop() == 0
        node.start(ready=False)

    def restart_all(self, node: ClusterNode) -> None:
        """A planned restart of one node after the other."""
        for one in self._nodes:
            self.restart(one)
            one.wait_until_in_cluster()

    def move_lead(self, node: ClusterNode) -> None:
        """Another node leads."""
        self._ask(node, "/cluster/transfer-leader")

    # Network

    def cut_off(self, node: ClusterNode) -> None:
        """The other nodes do not reach it, but clients do."""
        self._network.cut_off(node.number)
        self._wait(2, 8)

    def cut_off_leader(self, node: ClusterNode) -> None:
        """The same for the leader's node."""
        self.cut_off(self._node_that("leads"))

    def mute(self, node: ClusterNode) -> None:
        """It hears the others, but they do not hear it."""
        self._network.mute(node.number)
        self._wait(2, 6)

    def deafen(self, node: ClusterNode) -> None:
        """The others hear it, but it does not hear them."""
        self._network.deafen(node.number)
        self._wait(2, 6)

    def slow_down(self, node: ClusterNode) -> None:
        """What it sends to the others takes long."""
        self._network.slow_down(node.number)
        self._wait(3, 6)

    # Disks

    def fill_disk(self, node: ClusterNode) -> None:
        """There is no room on a disk."""
        self._disk.fill()
        self._wait(2, 6)
        self._disk.free()

    def wipe(self, node: ClusterNode) -> None:
        """Its disk is lost."""
        node.kill()
        node.wipe()
        self._wait(0, 1)
        node.start(ready=False)

    def wipe_bootstrap_node(self, node: ClusterNode) -> None:
        """The disk of the node that began the cluster is lost."""
        self.wipe(self._nodes[0])

    def wipe_while_cut_off(self, node: ClusterNode) -> None:
        """Its disk is lost, and it starts while it reaches no other node."""
        self._network.cut_off(node.number)
        self.wipe(node)
        self._wait(2, 5)

    # Store

    def stop_store(self, node: ClusterNode) -> None:
        """The store ends, and starts again."""
        self._store.stop()
        self._wait(1, 4)
        self._store.start()

    def freeze_store(self, node: ClusterNode) -> None:
        """The store takes connections and does not answer."""
        self._freeze([self._store.process.pid], 4)

    def cut_off_store(self, node: ClusterNode) -> None:
        """One node does not reach the store."""
        self._network.block_store(node.number)
        self._wait(2, 6)

    # Clocks

    def start_with_wrong_clock(self, node: ClusterNode) -> None:
        """It starts with a wrong clock, which is set right while it runs."""
        assert node.stop() == 0
        with self._wrong_clock(node):
            node.start(ready=False)
            self._wait(2, 4)

    def set_clock(self, node: ClusterNode) -> None:
        """Its clock is set wrong while it runs, and then right."""
        with self._wrong_clock(node):
            self._wait(2, 4)

    # Helpers

    @contextmanager
    def _wrong_clock(self, node: ClusterNode) -> Iterator[None]:
        seconds = self._random.choice((-60, -3, -1, 1, 3, 60))
        print(f"its clock is wrong by {seconds} s", flush=True)
        node.pass_time(seconds)
        yield
        node.pass_time(-seconds)

    def _kill_and_start(self, nodes: list[ClusterNode]) -> None:
        for node in nodes:
            node.kill()
        self._wait(0, 2)
        for node in nodes:
            node.start(ready=False)

    def _freeze(self, processes: list[int], seconds: float) -> None:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        for process in processes:
            os.kill(process, signal.SIGCONT)

    def _freeze_seconds(self) -> float:
        is_long_one = IS_LONG and self._random.random() < 0.2
        return LONG_FREEZE_SECONDS if is_long_one else FREEZE_SECONDS

    def _wait(self, least: float, most: float) -> None:
        time.sleep(self._random.uniform(least, most))

    def _node_that(self, does: str) -> ClusterNode:
        """The node that leads, or that is the keeper, as soon as there is one."""
        while True:
            for one in status_of(self._nodes[0])["nodes"]:
                if one[does]:
                    return next(node for node in self._nodes if node.number == one["node_id"])
            time.sleep(0.1)

    def _ask(self, node: ClusterNode, path: str) -> None:
        """Ask for something that may fail."""
        with suppress(httpx.TransportError):
            httpx.post(f"{node.url}{path}", timeout=20)
