"""The log in memory: the whole contract except durability. For tests, and as a baseline for benchmarks."""

from collections.abc import Awaitable, Callable
from weakref import WeakSet

from ursula.log.follower import Follower
from ursula.log.interface import (
    GENERATION_SHIFT,
    AppendRetryable,
    EntriesTrimmed,
    Entry,
    Measures,
    TakeEntry,
)


class MemoryLog:
    """Keeps entries until the process ends."""

    def __init__(self, generation: int = 1) -> None:
        self._base = self._tail = self._first = generation << GENERATION_SHIFT
        self._entries: list[Entry] = []
        self._size_bytes = 0
        self._followers: WeakSet[Follower] = WeakSet()
        self._closed = False

    batch_bytes = 1024 * 1024
    entry_bytes_max: int | None = None
    space_problem: str | None = None

    @property
    def known_tail(self) -> int:
        """The position of the last entry, or the one before the first."""
        return self._tail

    @property
    def first(self) -> int:
        """The position before the first entry that is still in the log."""
        return self._first

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads in the log."""
        return self._size_bytes

    @property
    def measures(self) -> Measures:
        """Its current extent and size. It has no files, and nothing to sync."""
        return Measures(self._first, self._tail, self._size_bytes, None, None)

    async def append(self, payload: bytes) -> int:
        """Keep the payload and return its position."""
        if self._closed:
            raise AppendRetryable("the log is closed")
        self._tail += 1
        entry = Entry(self._tail, payload)
        self._entries.append(entry)
        self._size_bytes += len(payload)
        for follower in self._followers:
            follower.offer(entry)
        return entry.position

    def follow(self, after: int, count: int | None = None, take: TakeEntry | None = None) -> Follower:
        """Entries after a position, then live ones."""
        follower = Follower(after, self._open_stored, take)
        self._followers.add(follower)
        if self._closed:
            follower.end()
        return follower

    async def tail(self) -> int:
        """The position of the last entry."""
        return self._tail

    async def protect(self, after: int) -> int:
        """Do nothing: the only node that reads the log is the one that trims it."""
        return self._first

    async def trim(self, upto: int) -> None:
        """Forget the entries at or below a position."""
        upto = min(upto, self._tail)
        if upto > self._first:
            count = upto - self._first
            self._size_bytes -= sum(len(entry.payload) for entry in self._entries[:count])
            del self._entries[:count]
            self._first = upto

    async def close(self) -> None:
        """Accept no more entries and end the followers."""
        self._closed = True
        for follower in self._followers:
            follower.end()

    def _open_stored(self, after: int) -> Callable[[], Awaitable[list[Entry]]]:
        first, entries = self._first, self._entries[max(0, after - self._first) :]

        async def stored() -> list[Entry]:
            if after < first and first != self._base:
                raise EntriesTrimmed(after, first)
            found = entries[:]
            entries.clear()
            return found

        return stored
