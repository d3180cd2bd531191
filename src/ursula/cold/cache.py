"""A cache of fetched and decoded items, bounded by bytes. For one event loop.

When it is full, it evicts items that a reader has consumed first, then the least recently used ones. So a
reader that goes through a long stream once does not evict items that others use again and again.

Callers that want the same item at the same time share one load of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

CONSUMED_KEPT = 16
"""How many consumed items are kept, for readers that are a little behind the first one."""


class Cache:
    """At most `bytes_max` bytes of items; an item larger than that is returned but not kept."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self.shared = 0
        self.evicted = 0
        self._items: dict[Hashable, tuple[Any, int]] = {}  # in the order of their last use
        self._consumed: dict[Hashable, None] = {}  # in the order in which they were marked
        self._loading: dict[Hashable, asyncio.Task[Any]] = {}
        self._reserved: dict[Hashable, Callable[[], None]] = {}  # memory used elsewhere, and how to free it

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Hashable) -> bool:
        """Whether an item is in the cache or is being loaded."""
        return key in self._items or key in self._loading

    async def get(self, key: Hashable, load: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        """The item with this key; if it is missing, `load` returns it and its size in bytes.

        A load continues even if its callers are cancelled. If it fails, it fails for all of them.
        """
        if (found := self._items.pop(key, None)) is not None:
            self._items[key] = found
            self._consumed.pop(key, None)
            self.hits += 1
            item: T = found[0]
            return item
        task = self._loading.get(key)
        if task is None:
            self.misses += 1
            task = self._loading[key] = asyncio.create_task(self._load(key, load))
            task.add_done_callback(lambda task: self._ended(key, task))
        else:
            self.shared += 1
        return await asyncio.shield(task)

    def mark_consumed(self, key: Hashable) -> None:
        """Note that a reader has finished with an item and will not ask for it again."""
        if key in self._items:
            self._consumed.pop(key, None)
            self._consumed[key] = None

    def forget(self, key: Hashable) -> None:
        """Drop an item that turned out to be unusable."""
        if (found := self._items.pop(key, None)) is not None:
            self._consumed.pop(key, None)
            self.held_bytes -= found[1]

    def reserve(self, key: Hashable, size: int, evict: Callable[[], None]) -> None:
        """Count data that is kept elsewhere as an item; `evict` is called to drop and unreserve it."""
        self._reserved[key] = evict
        self._insert(key, None, size)

    def unreserve(self, key: Hashable) -> None:
        """Stop counting data that was kept elsewhere."""
        if self._reserved.pop(key, None) is not None:
            self.held_bytes -= self._items.pop(key)[1]

    async def close(self) -> None:
        """Drop all items and cancel loads in progress."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._items.clear()
        self._consumed.clear()
        self._reserved.clear()
        self.held_bytes = 0

    async def _load(self, key: Hashable, load: Callable[[], Awaitable[tuple[T, int]]]) -> T:
        item, size = await load()
        if size <= self.bytes_max:
            self._insert(key, item, size)
        return item

    def _insert(self, key: Hashable, item: Any, size: int) -> None:
        self._items[key] = (item, size)
        self.held_bytes += size
        while self.held_bytes > self.bytes_max:
            victim = next(iter(self._consumed if len(self._consumed) > CONSUMED_KEPT else self._items))
            if victim in self._reserved:
                self._reserved[victim]()
            else:
                self._consumed.pop(victim, None)
                self.held_bytes -= self._items.pop(victim)[1]
            self.evicted += 1

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._loading[key]
        if not task.cancelled():
            task.exception()  # waiting callers get it; if none are left, asyncio must not complain
