"""How entries reach a reader: first the stored ones, then live ones, without gaps or repeats.

A follower subscribes to live entries at the moment at which it fixes the range of stored entries to read, so
that the two meet exactly. Runs on the event loop only; knows nothing of files.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ursula.log.interface import Entry, TakeEntry

LIVE_ENTRIES_MAX = 4096
"""A follower further behind than this drops its live entries and reads them from storage."""

ReadStored = Callable[[], Awaitable[list[Entry]]]
"""Returns the next stored entries in order, none at the end."""


class Follower:
    """One reader of a log. A live entry is delivered as the very object that was appended."""

    def __init__(
        self, after: int, open_stored: Callable[[int], ReadStored], take: TakeEntry | None = None
    ) -> None:
        self._position = after
        self._take = take
        self._open_stored = open_stored
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._behind = False
        self._begin()

    def __aiter__(self) -> "Follower":
        return self

    async def __anext__(self) -> Entry:
        while not self._ready:
            await self._more()
        entry = self._ready.popleft()
        self._position = entry.position
        return entry

    def offer(self, entry: Entry) -> None:
        """Take a live entry. Called in order, for each entry stored after the follower began."""
        if self._behind or entry.position <= self._position or self._is_taken(entry):
            return
        if len(self._live) == LIVE_ENTRIES_MAX:
            self._behind = True
            self._live.clear()
        else:
            self._live.append(entry)
        self._wake()

    def _is_taken(self, entry: Entry) -> bool:
        """Offer a live entry to `take`, if the reader waits for exactly this one."""
        waiter = self._waiter
        if self._take is None or self._live or waiter is None or waiter.done():
            return False
        try:
            is_taken = self._take(entry)
        except Exception as error:
            waiter.set_exception(error)
            return True
        if is_taken:
            self._position = entry.position
        return is_taken

    def end(self) -> None:
        """No more entries will come."""
        self._ended = True
        self._wake()

    def _begin(self) -> None:
        self._behind = False
        self._live: deque[Entry] = deque()
        self._ready: deque[Entry] = deque()
        self._read_stored: ReadStored | None = self._open_stored(self._position)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        if self._ended:
            raise StopAsyncIteration
        if self._behind:
            self._begin()
        if self._read_stored is not None:
            await self._take_stored(self._read_stored)
        else:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def _take_stored(self, read_stored: ReadStored) -> None:
        try:
            entries = await read_stored()
        except BaseException:
            # A cancelled read may have advanced in its thread: begin again at the reader's position.
            self._behind = True
            raise
        if entries:
            self._ready.extend(entries)
        else:
            self._read_stored, self._ready = None, self._live
