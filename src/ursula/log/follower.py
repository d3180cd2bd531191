"""How an entry reaches a reader: first what is stored, then live entries, without gap or repeat.

A follower joins the live entries in the moment it looks at what is stored, so that the two meet exactly.
Runs on the event loop alone; knows nothing of files.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ursula.log.seam import Entry

LIVE_ENTRIES_MAX = 4096
"""A follower further behind than this lets the live entries go and reads them from storage."""

Stored = Callable[[], Awaitable[list[Entry]]]
"""Returns the next stored entries in order, none at the end."""


class Follower:
    """One reader of a log. Live entries are handed on as the very objects that were appended."""

    def __init__(self, after: int, open_stored: Callable[[int], Stored]) -> None:
        self._position = after
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
        if self._behind or entry.position <= self._position:
            return
        if len(self._live) == LIVE_ENTRIES_MAX:
            self._behind = True
            self._live.clear()
        else:
            self._live.append(entry)
        self._wake()

    def end(self) -> None:
        """No more entries will come."""
        self._ended = True
        self._wake()

    def _begin(self) -> None:
        self._behind = False
        self._live: deque[Entry] = deque()
        self._ready: deque[Entry] = deque()
        self._stored: Stored | None = self._open_stored(self._position)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        if self._ended:
            raise StopAsyncIteration
        if self._behind:
            self._begin()
        if self._stored is not None:
            await self._take_stored(self._stored)
        else:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def _take_stored(self, stored: Stored) -> None:
        try:
            entries = await stored()
        except BaseException:
            # A cancelled read may have moved on in its thread: begin again where the reader stands.
            self._behind = True
            raise
        if entries:
            self._ready.extend(entries)
        else:
            self._stored, self._ready = None, self._live
