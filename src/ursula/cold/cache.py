"""A cache of what was fetched and decoded: so many bytes of it.

When it is full, what someone is done with goes first, then what was not used for longest: so those who read
a long stream once leave to others what those use again and again.

Those who want the same thing at the same time wait for one load of it. For one event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


SPENT_KEPT = 16
"""So many items that someone is done with stay: whoever reads the same a bit later finds them."""


class Cache:
    """At most `bytes_max` bytes of items; what is larger by itself is handed out but not kept."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self.shared = 0
        self.evicted = 0
        self._held: dict[Hashable, tuple[Any, int]] = {}  # in the order of their last use
        self._spent: dict[Hashable, None] = {}  # in the order in which someone was done with them
        self._loading: dict[Hashable, asyncio.Task[Any]] = {}
        self._lent: dict[Hashable, Callable[[], None]] = {}  # room that others use, and how to ask for it

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: Hashable) -> bool:
        """Whether an item is there, or will be soon."""
        return key in self._held or key in self._loading

    async def get(self, key: Hashable, load: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        """The item of this key; if it is not there, `load` says what it is and how many bytes it takes.

        A load goes on when those who wait for it are cancelled, and fails for all who wait for it.
        """
        if (held := self._held.pop(key, None)) is not None:
            self._held[key] = held
            self._spent.pop(key, None)
            self.hits += 1
            item: T = held[0]
            return item
        task = self._loading.get(key)
        if task is None:
            self.misses += 1
            task = self._loading[key] = asyncio.create_task(self._load(key, load))
            task.add_done_callback(lambda task: self._ended(key, task))
        else:
            self.shared += 1
        return await asyncio.shield(task)

    def spend(self, key: Hashable) -> None:
        """Say that someone is done with an item and will not come back for it."""
        if key in self._held:
            self._spent.pop(key, None)
            self._spent[key] = None

    def forget(self, key: Hashable) -> None:
        """Let go of an item that turned out to be of no use."""
        if (held := self._held.pop(key, None)) is not None:
            self._spent.pop(key, None)
            self.held_bytes -= held[1]

    def lend(self, key: Hashable, size: int, give_back: Callable[[], None]) -> None:
        """Count something that is kept elsewhere like an item; `give_back` is called when it must go."""
        self._lent[key] = give_back
        self._hold(key, None, size)

    def release(self, key: Hashable) -> None:
        """Count something no more that was kept elsewhere."""
        if self._lent.pop(key, None) is not None:
            self.held_bytes -= self._held.pop(key)[1]

    async def close(self) -> None:
        """Hold nothing and end the loads that are under way."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._held.clear()
        self._spent.clear()
        self._lent.clear()
        self.held_bytes = 0

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        item, size = await load()
        if size <= self.bytes_max:
            self._hold(key, item, size)
        return item

    def _hold(self, key: Hashable, item: Any, size: int) -> None:
        self._held[key] = (item, size)
        self.held_bytes += size
        while self.held_bytes > self.bytes_max:
            goes = next(iter(self._spent if len(self._spent) > SPENT_KEPT else self._held))
            if goes in self._lent:
                self._lent[goes]()
            else:
                self._spent.pop(goes, None)
                self.held_bytes -= self._held.pop(goes)[1]
            self.evicted += 1

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._loading[key]
        if not task.cancelled():
            task.exception()  # it is told to those who wait, if anyone still does
