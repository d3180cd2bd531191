"""After a flush: what is stored is let go of, and what is idle is parked, in small steps.

What came lately is what most readers ask for. So it stays a while after it was stored, and counts as part of
what the cache holds: it goes when that needs the room, when it is old, or when someone asks for a flush.
"""

import asyncio
import time
from itertools import chain
from typing import NamedTuple

from ...cold.cache import Cache
from ...model.journal import Journal
from ...model.state import State
from ...model.store_view.dirty_rows import Key, RowKind
from ...model.stream.stream import Stream
from ..pacing import Turn

DROPPED_AT_ONCE = 4096
"""So many messages are let go of before others have their turn."""

MESSAGE_BYTES = 64
STREAM_BYTES = 1024
"""About what a message takes in memory beside its payload, and a stream that is not parked."""


class Stay(NamedTuple):
    """Streams with messages that are stored up to a cut, what these take, and when they came."""

    cut: int
    keys: list[Key]
    size: int
    since: float


class Settling:
    """Lets go of what one group has in memory and in the store too."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._cache = Cache(0)
        self._seconds = 0.0
        self._may_stay = True
        self._staying: dict[int, Stay] = {}  # by cut, oldest first
        self._leaving: list[Stay] = []
        self._settled_to = state.stored_to
        self.staying_bytes = 0
        self.task: asyncio.Task[None] | None = None

    def share(self, cache: Cache, seconds: float) -> None:
        """Let what is stored stay for some time from now on, in as much as half of the room of a cache."""
        self._cache, self._seconds = cache, seconds

    def let_stay(self, may_stay: bool) -> None:
        """Say whether what is stored from now on may stay; if not, what has stayed so far must go too."""
        self._may_stay = may_stay
        if not may_stay:
            for cut in list(self._staying):
                self._send_off(cut)

    @property
    def _room(self) -> int:
        return self._cache.bytes_max // 2 if self._may_stay else 0

    def begin(self) -> None:
        """Begin, unless that is under way: then it goes on with what is new."""
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    async def over(self) -> None:
        """Wait until all is let go of that may go now."""
        if self.task is not None:
            await asyncio.wait((self.task,))

    def stop(self) -> None:
        """Leave the rest as it is."""
        if self.task is not None:
            self.task.cancel()

    def look_around(self) -> None:
        """Let go of what has been here for long, and park streams again that were asked for."""
        latest = time.monotonic() - self._seconds
        for cut in [stay.cut for stay in self._staying.values() if stay.since <= latest]:
            self._send_off(cut)
        if self._has_more or self._state.unparked:
            self.begin()

    async def _run(self) -> None:
        turn = Turn()
        while True:
            await self._let_go_of_trimmed(turn)
            await self._let_go_of_stored(turn)
            while self._leaving:
                stay = self._leaving.pop()
                await self._let_go_of_streams(stay.keys, stay.cut, turn)
            await self._park(turn)
            if not self._has_more:  # who has more for us meanwhile has found this task at work
                return

    @property
    def _has_more(self) -> bool:
        state = self._state
        return bool(state.settled or state.settled_parts or state.trimmed or self._leaving)

    async def _let_go_of_stored(self, turn: Turn) -> None:
        """Let go of what was flushed since the last time, but for what may stay."""
        state = self._state
        cut, before, self._settled_to = state.stored_to, self._settled_to, state.stored_to
        settled, state.settled = state.settled, []
        parts, state.settled_parts = state.settled_parts, []
        await self._let_go_of_parts(parts, turn)
        keys = list(chain.from_iterable(settled))
        del parts, settled
        if self._room:
            keys, staying, size = await self._divide(keys, before, cut, turn)
            if size > self._room:
                keys += staying
            elif staying:
                self._stay(Stay(cut, staying, size, time.monotonic()))
        await self._let_go_of_streams(keys, cut, turn)

    async def _let_go_of_parts(self, parts: list[tuple[str, Journal]], turn: Turn) -> None:
        """Let go of journals, oldest first: who follows a bucket must not find a hole."""
        for bucket, part in parts:
            found = self._state.buckets.get(bucket)
            if found is not None:
                found.forget_part(part)
            else:
                self._state.gauge.count -= part.held_bytes
            while not part.drain(DROPPED_AT_ONCE):
                await turn.end()

    async def _divide(
        self, keys: list[Key], before: int, cut: int, turn: Turn
    ) -> tuple[list[Key], list[Key], int]:
        """The keys of what must go, those of streams that may stay, and what these take since the cut before.

        The list itself is emptied.
        """
        going: list[Key] = []
        staying: list[Key] = []
        size = 0
        while keys:
            kind, bucket, name = key = keys.pop()
            found = self._state.buckets.get(bucket) if kind == RowKind.STREAM else None
            stream = found.streams.get(name) if found is not None else None
            if stream is None or not _may_stay(stream):
                going.append(key)
            else:
                staying.append(key)
                size += _memory_of(stream, before, cut)
            await turn.end()
        return going, staying, size

    def _stay(self, stay: Stay) -> None:
        """Have streams stay, and send off the oldest that have no room beside them."""
        self._staying[stay.cut] = stay
        self.staying_bytes += stay.size
        while self.staying_bytes > self._room:
            self._send_off(next(iter(self._staying)))
        if stay.cut in self._staying:
            self._cache.lend((self, stay.cut), stay.size, lambda: self._send_off(stay.cut))

    def _send_off(self, cut: int) -> None:
        """Have streams leave soon."""
        stay = self._staying.pop(cut)
        self.staying_bytes -= stay.size
        self._cache.release((self, cut))
        self._leaving.append(stay)
        self.begin()

    async def _let_go_of_streams(self, keys: list[Key], cut: int, turn: Turn) -> None:
        """Let go of what is stored up to a cut; one by one, since to free very many at once takes long."""
        while keys:
            key = keys.pop()
            while not self._let_go(*key, cut):
                await turn.end()
            await turn.end()

    def _let_go(self, kind: int, bucket: str, name: str, cut: int) -> bool:
        """Let go of what is stored of a stream, or of some of it; whether that was all."""
        state = self._state
        if kind == RowKind.GRAVE:
            return state.graves.drop_stored(bucket, name, cut, DROPPED_AT_ONCE)
        if kind == RowKind.STREAM:
            found = state.buckets.get(bucket)
            stream = found.streams.get(name) if found is not None else None
            if found is not None and stream is not None:
                if not stream.drop_stored(cut, DROPPED_AT_ONCE):
                    return False
                if stream.changed <= state.stored_to:
                    found.park(stream)
                else:
                    stream.encoded = None  # it is not parked soon, so its row need not be kept
        return True

    async def _let_go_of_trimmed(self, turn: Turn) -> None:
        """Let go of what streams had before they were trimmed."""
        while self._state.trimmed:
            (bucket, name), _ = self._state.trimmed.popitem()
            while not self._drop_trimmed(bucket, name):
                await turn.end()

    def _drop_trimmed(self, bucket: str, name: str) -> bool:
        """Let go of some of it; whether that was all. Each time the stream may be another one."""
        found = self._state.buckets.get(bucket)
        stream = found.streams.get(name) if found is not None else None
        return stream is None or stream.drop_trimmed()

    async def _park(self, turn: Turn) -> None:
        """Park streams again that were asked for."""
        state = self._state
        for stream, bucket in list(state.unparked.items()):
            found = state.buckets.get(bucket)
            if found is not None and stream.changed <= state.stored.flushed:
                found.park(stream)
            state.unparked.pop(stream, None)
            await turn.end()


def _may_stay(stream: Stream) -> bool:
    """Whether the messages of a stream may stay.

    Few bytes are not worth what the stream takes itself. And a body that was stored by itself is not needed
    once it is in a segment: nothing may name it any more.
    """
    messages = stream.messages
    return messages.end - messages.start >= STREAM_BYTES and not messages.has_parts


def _memory_of(stream: Stream, after: int, cut: int) -> int:
    """About what it takes that a stream has messages from between two cuts."""
    messages = stream.messages
    begin = max(stream.end_at(after), messages.start)
    end = max(stream.end_at(cut), begin)
    count = messages.count_before(end) - messages.count_before(begin)
    return end - begin + count * MESSAGE_BYTES + STREAM_BYTES
