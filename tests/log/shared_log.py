"""A log in memory that several nodes share, each by a connection of its own. Its tail must be asked for."""

import asyncio
from itertools import groupby

from ursula.log.interface import (
    COUNTER_MASK,
    AppendRetryable,
    AppendUnknown,
    EntriesTrimmed,
    Entry,
    LogUnavailable,
    Measures,
    TakeEntry,
)
from ursula.log.memory import MemoryLog
from ursula.model.codec.entry import StoredEntry, decode, decode_any, encode_batches


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

    @property
    def base(self) -> int:
        """The position before the first entry there ever was."""
        return self._base

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
    space_problem: str | None = None

    def __init__(self, memory: "SharedMemory") -> None:
        self.memory = memory
        self.is_open = True
        self._followers: list[SharedFollower] = []
        self.tail_calls = 0
        self.seen = memory.base
        """The position of the last entry that has reached this node."""
        self.is_cut_off = False
        """Nothing of this node reaches the log, and nothing of the log reaches this node."""
        self.loses_answers = False
        """Appends reach the log and come back, but their answers do not."""
        self.refused_count = 0
        self.is_silent = False
        """Appends reach the log, but nothing of the log reaches this node."""

    @property
    def first(self) -> int:
        return self.memory.first

    @property
    def measures(self) -> Measures:
        """Its extent and size, as far as this node has followed it."""
        return self.memory.measures._replace(tail=self.seen)

    def _reach(self) -> None:
        if self.is_cut_off or self.memory.is_unreachable:
            self.refused_count += 1
            raise LogUnavailable("no answer")

    def append(self, payload: bytes) -> asyncio.Future[int]:
        return asyncio.shield(asyncio.create_task(self._append(payload)))

    async def _append(self, payload: bytes) -> int:
        if not self.is_open:
            raise AppendRetryable("the connection is closed")
        if self.is_cut_off:
            raise AppendUnknown("no answer")
        await asyncio.sleep(0)
        append = self.memory.append_joined if self.memory.joins else self.memory.append
        position = await append(payload)
        if self.loses_answers:
            await asyncio.sleep(0.01)
            raise AppendUnknown("no answer")
        return position

    def follow(self, after: int, count: int | None = None, take: TakeEntry | None = None) -> "SharedFollower":
        assert count in (None, after & COUNTER_MASK), "the positions of this log have no gaps"
        follower = SharedFollower(self, after)
        self._followers.append(follower)
        return follower

    async def tail(self) -> int:
        self.tail_calls += 1
        await asyncio.sleep(0)
        self._reach()
        return await self.memory.tail()

    async def protect(self, after: int) -> int:
        self._reach()
        self.memory.needed_after[self] = after
        return self.memory.first

    async def trim(self, upto: int) -> None:
        self._reach()
        self.memory.needed_after[self] = upto  # a node trims only what it has applied
        await self.memory.trim(upto)

    async def close(self) -> None:
        self.is_open = False
        self.memory.needed_after.pop(self, None)
        for follower in self._followers:
            follower.entries.end()


class SharedFollower:
    """What one node sees of the log. A cancelled `anext` loses nothing."""

    def __init__(self, log: SharedLog, after: int) -> None:
        self._log = log
        self._position = max(after, log.memory.base)
        self.entries = log.memory.follow(after)
        self._next: Entry | None = None

    def __aiter__(self) -> "SharedFollower":
        return self

    async def __anext__(self) -> Entry:
        if self._next is None and self._log.is_open:
            self._next = await anext(self.entries)
        while self._log.is_cut_off or self._log.is_silent:
            await asyncio.sleep(0.001)
        if self._next is None or not self._log.is_open:
            raise StopAsyncIteration
        if self._position < self._log.memory.first:
            raise EntriesTrimmed(self._position, self._log.memory.first)
        entry, self._next = self._next, None
        self._position = self._log.seen = entry.position
        return entry
