"""After a flush: how much stored data stays in memory, for how long, and its eviction in small steps.

Most readers ask for recent data. So it stays in memory for a while after it was stored, and counts as part of
the cache: it is evicted when the cache needs the room, when it is old, or when a flush is requested.
`model/residency.py` does the evicting; this module decides when.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...cold.cache import Cache
from ...model.state import State
from ...model.store_view.dirty_rows import Key
from ..background import BackgroundTasks
from ..pacing import TimeSlice

STREAMS_AT_ONCE = 32
"""How many streams are measured between two checks of the clock, which cost as much as measuring one."""


class ResidentCut(NamedTuple):
    """Streams whose messages up to a cut are stored and stay in memory: their size, and since when."""

    cut: int
    keys: list[Key]
    size: int
    since: float


class Evictor:
    """Evicts data that one group has both in memory and in the store."""

    def __init__(self, state: State, cache: Cache | None = None, seconds: float = 0.0) -> None:
        """Stored data stays for `seconds`, in at most half of the room of the cache."""
        self._residency = state.residency
        self._cache = Cache(0) if cache is None else cache
        self.seconds = seconds
        self._may_stay = True
        self._readers_of_journals = 0
        self._is_stopped = False
        self._resident: dict[int, ResidentCut] = {}  # by cut, oldest first
        self._leaving: list[ResidentCut] = []
        self._evicted_to = state.stored_to
        self.resident_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    def allow_resident(self, may_stay: bool) -> None:
        """Set whether data that is stored from now on may stay; if not, earlier data is evicted too."""
        self._may_stay = may_stay
        if not may_stay:
            for cut in list(self._resident):
                self._evict_later(cut)

    @contextmanager
    def journals_in_use(self) -> Iterator[None]:
        """Evict nothing that was flushed meanwhile: a flush of this node reads it.

        If another node's flush overtakes it, the store has the same data, and memory would drop it.
        """
        self._readers_of_journals += 1
        try:
            yield
        finally:
            self._readers_of_journals -= 1
            if self._has_more:
                self.begin()

    @property
    def _room(self) -> int:
        return self._cache.bytes_max // 2 if self._may_stay else 0

    def begin(self) -> None:
        """Begin to evict. A task that is already running also evicts data that was added since it began."""
        if not self._is_stopped and (self.task is None or self.task.done()):
            self.task = self._tasks.spawn(self._run())

    async def wait(self) -> None:
        """Wait until everything that may be evicted now is evicted."""
        if self.task is not None:
            await asyncio.wait((self.task,))

    def stop(self) -> None:
        """Stop, and leave the rest in memory, of which the cache knows nothing any more."""
        self._is_stopped = True
        for cut in self._resident:
            self._cache.unreserve((self, cut))
        self._resident.clear()
        if self.task is not None:
            self.task.cancel()

    def tick(self) -> None:
        """Evict data that has stayed long enough, and park streams that were unparked."""
        latest = time.monotonic() - self.seconds
        for cut in [resident.cut for resident in self._resident.values() if resident.since <= latest]:
            self._evict_later(cut)
        if self._has_more or self._residency.unparked:
            self.begin()

    async def _run(self) -> None:
        time_slice = TimeSlice()
        while True:
            await self._drive(self._residency.evict_trimmed(), time_slice)
            if self._may_evict_flushed:
                await self._evict_flushed(time_slice)
            while self._leaving:
                leaving = self._leaving.pop()
                await self._drive(self._residency.evict(leaving.keys, leaving.cut), time_slice)
            await self._drive(self._residency.park_unused(), time_slice)
            if not self._has_more:  # more may have been added, and `begin` leaves it to this task
                return

    @property
    def _has_more(self) -> bool:
        if self._leaving or self._residency.trimmed:
            return True
        return self._residency.has_evictable and self._may_evict_flushed

    @property
    def _may_evict_flushed(self) -> bool:
        return not self._readers_of_journals

    async def _drive(self, steps: Iterator[None], time_slice: TimeSlice) -> None:
        for _ in steps:
            await time_slice.end()

    async def _evict_flushed(self, time_slice: TimeSlice) -> None:
        """Evict the data that was flushed since the last time, except data that may stay."""
        cut, keys, parts = self._residency.take_evictable()
        before, self._evicted_to = self._evicted_to, cut
        await self._drive(self._residency.evict_journals(parts), time_slice)
        del parts
        if self._room:
            keys, staying, size = await self._divide(keys, before, cut, time_slice)
            if size > self._room:
                keys += staying
            elif staying:
                self._keep(ResidentCut(cut, staying, size, time.monotonic()))
        await self._drive(self._residency.evict(keys, cut), time_slice)

    async def _divide(
        self, keys: list[Key], before: int, cut: int, time_slice: TimeSlice
    ) -> tuple[list[Key], list[Key], int]:
        """The keys to evict, the keys of streams that may stay, and the memory of these since the last cut.

        Empties the list of keys.
        """
        going: list[Key] = []
        staying: list[Key] = []
        total = 0
        while keys:
            step = keys[-STREAMS_AT_ONCE:]
            del keys[-STREAMS_AT_ONCE:]
            for key in step:
                size = self._residency.memory_of(key, before, cut)
                if size is None:
                    going.append(key)
                else:
                    staying.append(key)
                    total += size
            await time_slice.end()
        return going, staying, total

    def _keep(self, resident: ResidentCut) -> None:
        """Let streams stay, and evict the oldest ones if there is no longer room for them."""
        self._resident[resident.cut] = resident
        self.resident_bytes += resident.size
        while self.resident_bytes > self._room:
            self._evict_later(next(iter(self._resident)))
        if resident.cut in self._resident:
            self._cache.reserve((self, resident.cut), resident.size, lambda: self._evict_later(resident.cut))

    def _evict_later(self, cut: int) -> None:
        """Leave the streams of a cut to the task, which evicts them."""
        resident = self._resident.pop(cut)
        self.resident_bytes -= resident.size
        self._cache.unreserve((self, cut))
        self._leaving.append(resident)
        self.begin()
