"""Several nodes in one process, on one log and one store, as a cluster has them.

The log is in memory, and its tail must be asked for. Nodes are killed and started, the keeper's role is moved
and time passes when a test says so.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from pathlib import Path

from tests.engine.driving import FakeClock, until
from tests.engine.nodes import got

from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import Store, StoreUnavailable
from ursula.config import ColdSettings, LogKind
from ursula.engine.agreement import Sample, find_disagreement
from ursula.engine.group.group import Group
from ursula.engine.keeper import KeeperRole
from ursula.engine.node import Node
from ursula.engine.peers import FlushFailure, Peers
from ursula.engine.start.data_folder import FORMAT, Identity
from ursula.log.interface import (
    COUNTER_MASK,
    AppendRetryable,
    AppendUnknown,
    EntriesTrimmed,
    Entry,
    LogUnavailable,
    Measures,
)
from ursula.log.memory import MemoryLog
from ursula.model.checkpoint import checkpoint
from ursula.model.codec.entry import StoredEntry, decode, decode_any, encode_batches
from ursula.model.outcomes import Page
from ursula.model.store_view.dirty_rows import Key, RowKind


class SharedMemory(MemoryLog):
    """The log itself. It is not trimmed beyond what a node needs, unless it is too long."""

    def __init__(self) -> None:
        super().__init__()
        self.needed_after: dict[SharedLog, int] = {}
        self.bytes_max = 1 << 30
        self.is_unreachable = False
        self.joins = False
        """Whether the batches of all nodes that append at the same time become one entry."""
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._joining: asyncio.Task[None] | None = None

    async def trim(self, upto: int) -> None:
        """Forget entries, but none that a node still needs."""
        if self.size_bytes <= self.bytes_max:
            upto = min(upto, *self.needed_after.values(), upto)
        await super().trim(upto)

    async def append_joined(self, payload: bytes) -> int:
        """Append a payload together with those that other nodes append at the same time."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((payload, future))
        if len(self._waiting) == 1:
            self._joining = asyncio.create_task(self._join())
        return await future

    async def _join(self) -> None:
        await asyncio.sleep(0.001)
        waiting, self._waiting = self._waiting, []
        for is_stored, some in groupby(waiting, lambda one: isinstance(decode_any(one[0]), StoredEntry)):
            joined = list(some)
            if is_stored:  # the name of an entry stands alone
                positions = [await self.append(payload) for payload, _ in joined]
            else:
                batches = [batch for payload, _ in joined for batch in decode(payload).batches]
                positions = [await self.append(encode_batches(batches))] * len(joined)
            for position, (_, future) in zip(positions, joined, strict=True):
                if not future.done():
                    future.set_result(position)


class SharedLog:
    """One node's connection to the log that all nodes share. Closing it ends only this connection."""

    known_tail = None
    batch_bytes = 64 * 1024
    entry_bytes_max: int | None = 128 * 1024

    def __init__(self, memory: "SharedMemory") -> None:
        self._memory = memory
        self._is_open = True
        self.tail_calls = 0
        self.is_cut_off = False
        """Nothing of this node reaches the log, and nothing of the log reaches this node."""
        self.loses_answers = False
        """Appends reach the log and come back, but their answers do not."""
        self.refused_count = 0
        self.is_silent = False
        """Appends reach the log, but nothing of the log reaches this node."""

    @property
    def first(self) -> int:
        return self._memory.first

    @property
    def measures(self) -> Measures:
        return self._memory.measures

    def _reach(self) -> None:
        if self.is_cut_off or self._memory.is_unreachable:
            self.refused_count += 1
            raise LogUnavailable("no answer")

    async def append(self, payload: bytes) -> int:
        if not self._is_open:
            raise AppendRetryable("the connection is closed")
        if self.is_cut_off:
            raise AppendUnknown("no answer")
        await asyncio.sleep(0)
        append = self._memory.append_joined if self._memory.joins else self._memory.append
        position = await append(payload)
        if self.loses_answers:
            await asyncio.sleep(0.01)
            raise AppendUnknown("no answer")
        return position

    async def follow(self, after: int, count: int | None = None) -> AsyncIterator[Entry]:
        position = after
        assert count == after & COUNTER_MASK, "the positions of this log have no gaps"
        async for entry in self._memory.follow(after):
            while self.is_cut_off or self.is_silent:
                await asyncio.sleep(0.001)
            if not self._is_open:
                return
            if position < self._memory.first:
                raise EntriesTrimmed(position, self._memory.first)
            position = entry.position
            yield entry

    async def tail(self) -> int:
        self.tail_calls += 1
        await asyncio.sleep(0)
        self._reach()
        return await self._memory.tail()

    async def protect(self, after: int) -> int:
        self._reach()
        self._memory.needed_after[self] = after
        return self._memory.first

    async def trim(self, upto: int) -> None:
        self._reach()
        self._memory.needed_after[self] = upto  # a node trims only what it has applied
        await self._memory.trim(upto)

    async def close(self) -> None:
        self._is_open = False
        self._memory.needed_after.pop(self, None)


class KnownPeers(Peers):
    """The other nodes of the cluster of a test, whose samples are known at once."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._number = number

    def samples(self, group: int) -> dict[str, list[Sample]]:
        others = [node for node in self._cluster.nodes.values() if node.number != self._number]
        return {f"n{node.number}": node.groups[group].samples() for node in others if node.groups}

    def flush_failure(self, group: int) -> FlushFailure | None:
        others = [node for node in self._cluster.nodes.values() if node.number != self._number]
        return next(filter(None, (node.flushers[group].failure for node in others if node.flushers)), None)


class MovableRole(KeeperRole):
    """The keeper's role, which the cluster of a test gives to one of its nodes at a time."""

    is_held = False


class Member(Node):
    """A node of a cluster in a test."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.number = number
        self.role = MovableRole()
        self.peers = KnownPeers(cluster, number)
        self.memory = cluster.memory
        self.connection = SharedLog(cluster.memory)
        self.connection_count = 0
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
        )

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
