"""Several nodes in one process, on one log and one store, as a cluster has them.

The log is in memory, and its tail must be asked for. Nodes are killed and started, the keeper's role is moved
and time passes when a test says so.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.engine.driving import FakeClock, until
from tests.engine.nodes import got
from tests.log.shared_log import SharedLog, SharedMemory

from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import Store, StoreUnavailable
from ursula.config import ColdSettings, LogKind
from ursula.engine.agreement import Sample, find_disagreement
from ursula.engine.group.group import Group
from ursula.engine.keeper import KeeperRole
from ursula.engine.node import Node
from ursula.engine.peers import FlushFailure, Peers
from ursula.engine.start.data_folder import FORMAT, Identity
from ursula.model.checkpoint import checkpoint
from ursula.model.outcomes import Page
from ursula.model.store_view.dirty_rows import Key, RowKind


class KnownPeers(Peers):
    """The other nodes of the cluster of a test, whose samples are known at once."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._number = number
        self.is_clock_wrong = False

    @property
    def write_problem(self) -> str | None:
        return "the clock is wrong" if self.is_clock_wrong else None

    def samples(self, group: int) -> dict[str, list[Sample]]:
        others = [node for node in self._cluster.nodes.values() if node.number != self._number]
        return {f"n{node.number}": node.groups[group].samples() for node in others if node.groups}

    def flush_failure(self, group: int) -> FlushFailure | None:
        others = [node for node in self._cluster.nodes.values() if node.number != self._number]
        return next(filter(None, (node.flushers[group].failure for node in others if node.flushers)), None)


class MovableRole(KeeperRole):
    """The keeper's role, which the cluster of a test gives to one of its nodes at a time."""

    is_held = False
    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


class Member(Node):
    """A node of a cluster in a test."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.number = number
        self.role = MovableRole()
        self.peers = KnownPeers(cluster, number)
        self.memory = cluster.memory
        self.connection = SharedLog(cluster.memory)
        self.connection_count = 0
        self.when_restarted: list[Callable[[], None]] = []
        """Called when its live reads must end."""
        super().__init__(
            LogKind.MEMORY,
            None,
            log_segment_bytes=0,
            clock=cluster.clock,
            cold=cluster.cold,
            store=cluster.open_store(number),
            identity=cluster.identity,
            role=self.role,
            peers=self.peers,
            on_restart=self._tell_of_restart,
        )

    def _tell_of_restart(self) -> None:
        for tell in self.when_restarted:
            tell()

    async def _open_log(self, number: int) -> SharedLog:
        if self.connection_count:
            self.connection = SharedLog(self.memory)
        self.connection_count += 1
        return self.connection

    @property
    def group(self) -> Group:
        """Its only group."""
        return self.groups[0]


class SlowStore(FsStore):
    """Local files, of which state objects may take a while to read."""

    def __init__(self, root: Path, cluster: "Cluster", owner: str) -> None:
        super().__init__(root, owner)
        self._cluster = cluster

    async def put(self, key: str, data: bytes | memoryview) -> None:
        if self._cluster.is_full:
            raise StoreUnavailable("the disk is full")
        await super().put(key, data)

    async def get(self, key: str) -> bytes:
        if key.startswith("state"):
            await self._cluster.before_state()
        return await super().get(key)


async def no_wait() -> None:
    """Read a state object at once."""


class Cluster:
    """Nodes that share a log and a store."""

    def __init__(self, folder: Path, cold: ColdSettings) -> None:
        self.memory = SharedMemory()
        self.clock = FakeClock()
        self.cold = cold
        self.identity = Identity(FORMAT, "one", 1, 1)
        self.nodes: dict[int, Member] = {}
        self.problems: list[BaseException] = []
        """Why nodes have ended by themselves."""
        self.is_full = False
        """Whether the store accepts no objects."""
        self.before_state: Callable[[], Awaitable[None]] = no_wait
        """Awaited before a state object is read."""
        self.is_corrupted = False
        """Whether a test has changed the state of a node by hand."""
        self._folder = folder
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def open_store(self, number: int = 0) -> Store:
        """The store, as a node uses it."""
        return SlowStore(self._folder / "cold", self, f"n{number}")

    async def start(self, number: int) -> Member:
        """Start a node, and wait until it serves."""
        node = self.nodes[number] = Member(self, number)
        self._tasks[number] = task = asyncio.create_task(self._run(node))
        await until(lambda: node.recovered or task.done())
        return node

    async def kill(self, number: int) -> None:
        """Let a node disappear, whatever it is doing: it finishes nothing."""
        node = self.nodes.pop(number)
        node.connection.is_cut_off = True
        node.role.is_held = False
        for group in node.groups:
            group.abandon("it was killed")
        task, tasks = self._tasks.pop(number), [*node._workers, *node._serving]
        for one in (task, *tasks):
            one.cancel()
        await asyncio.gather(task, *tasks, return_exceptions=True)
        await node.connection.close()
        assert node._temporary is not None
        node._temporary.cleanup()

    @property
    def is_unreachable(self) -> bool:
        """Whether the log answers no questions; entries still come through."""
        return self.memory.is_unreachable

    @is_unreachable.setter
    def is_unreachable(self, value: bool) -> None:
        self.memory.is_unreachable = value

    @property
    def disagreements(self) -> dict[int, str]:
        """Why nodes must not serve, by the number of the node."""
        found = {number: node.disagreement for number, node in self.nodes.items()}
        return {number: reason for number, reason in found.items() if reason is not None}

    def compare(self) -> None:
        """Check that no node contradicts another one, unless a test has made it."""
        for node in self.nodes.values():
            for group in node.groups:
                found = find_disagreement(group.samples(), node.peers.samples(group.number))
                assert found is None or self.is_corrupted, found

    def make_keeper(self, number: int | None) -> None:
        """Give the keeper's role to one node, or to none."""
        for node in self.nodes.values():
            node.role.is_held = node.number == number

    async def in_step(self) -> None:
        """Wait until every node has applied everything."""
        tail = self.memory.known_tail
        await until(lambda: all(node.group.applied >= tail for node in self.nodes.values()))

    async def stop(self) -> None:
        """Stop all nodes in good order."""
        for number, node in self.nodes.items():
            await node.stop()
            with suppress(asyncio.CancelledError):
                await self._tasks[number]

    async def _run(self, node: Member) -> None:
        try:
            await node.run()
        except Exception as error:
            self.problems.append(error)


@asynccontextmanager
async def cluster_of(count: int, folder: Path, cold: ColdSettings | None = None) -> AsyncIterator[Cluster]:
    """Some nodes that serve; the first one is the keeper. None of them may have failed at the end."""
    cluster = Cluster(folder, cold or ColdSettings(cache_bytes=0))
    try:
        for number in range(count):
            await cluster.start(number)
        cluster.make_keeper(0)
        yield cluster
        cluster.compare()
    finally:
        await cluster.stop()
    assert cluster.problems == [], cluster.problems


def rows_of(node: Member) -> dict[Key, bytes | None]:
    """Everything that a node knows of buckets, streams and the store, as it would be stored."""
    state = node.group.state
    return {
        key: checkpoint.row_of(state, key) for key in checkpoint.all_keys(state) if key[0] != RowKind.GROUP
    }


async def content_of(node: Member, name: str, bucket: str = "b") -> bytes:
    """Everything in a stream, wherever it is."""
    page = await got(node.group.read(bucket, name, 0, 1 << 30))
    assert isinstance(page, Page), page
    return b"".join(page.chunks)
