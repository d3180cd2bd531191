"""A cache that is bounded by bytes, and whose callers share loads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ursula.cold.cache import CONSUMED_KEPT, Cache

pytestmark = pytest.mark.anyio


class Source:
    """Records loads; they wait for `go`."""

    def __init__(self, size: int = 10) -> None:
        self.loads: list[str] = []
        self.size = size
        self.go = asyncio.Event()
        self.go.set()

    def load(self, key: str) -> Callable[[], Awaitable[tuple[str, int]]]:
        async def load() -> tuple[str, int]:
            self.loads.append(key)
            await self.go.wait()
            if key == "bad":
                raise OSError("the disk is gone")
            return key.upper(), self.size

        return load


async def test_an_item_is_loaded_once() -> None:
    cache, source = Cache(100), Source()
    assert [await cache.get("a", source.load("a")) for _ in range(3)] == ["A", "A", "A"]
    assert source.loads == ["a"]
    assert (cache.hits, cache.misses, cache.shared, cache.evicted) == (2, 1, 0, 0)
    assert (cache.held_bytes, len(cache)) == (10, 1)


async def test_the_least_recently_used_item_is_evicted_first() -> None:
    cache, source = Cache(30), Source()
    for key in ("a", "b", "c", "a", "d"):
        await cache.get(key, source.load(key))
    assert (cache.held_bytes, len(cache), cache.evicted) == (30, 3, 1)
    source.loads.clear()
    for key in ("a", "c", "d", "b"):
        await cache.get(key, source.load(key))
    assert source.loads == ["b"]


async def test_consumed_items_are_evicted_before_the_least_recently_used_one() -> None:
    cache, source = Cache(10 * (CONSUMED_KEPT + 4)), Source()
    await cache.get("old", source.load("old"))
    keys = [f"k{number}" for number in range(CONSUMED_KEPT + 8)]
    for key in keys:
        await cache.get(key, source.load(key))
        cache.mark_consumed(key)
    cache.mark_consumed("nobody has it")
    source.loads.clear()
    await cache.get("old", source.load("old"))
    for key in keys[-CONSUMED_KEPT:]:
        await cache.get(key, source.load(key))
    assert source.loads == [], "the old one and the last consumed ones are there"
    await cache.get(keys[0], source.load(keys[0]))
    assert source.loads == [keys[0]]


async def test_an_item_larger_than_the_cache_is_returned_but_not_kept() -> None:
    cache, source = Cache(30), Source()
    await cache.get("a", source.load("a"))
    source.size = 31
    assert await cache.get("large", source.load("large")) == "LARGE"
    assert (cache.held_bytes, len(cache), cache.evicted) == (10, 1, 0)


async def test_callers_that_want_the_same_item_share_one_load_even_if_nothing_is_kept() -> None:
    cache, source = Cache(0), Source()
    assert await asyncio.gather(*(cache.get("a", source.load("a")) for _ in range(5))) == ["A"] * 5
    assert source.loads == ["a"]
    assert (cache.misses, cache.shared, cache.held_bytes, len(cache)) == (1, 4, 0, 0)
    await cache.get("a", source.load("a"))
    assert source.loads == ["a", "a"]


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_a_cancelled_caller_does_not_cancel_the_load_of_others(cancelled: int) -> None:
    cache, source = Cache(100), Source()
    source.go.clear()
    readers = [asyncio.create_task(cache.get("a", source.load("a"))) for _ in range(2)]
    await asyncio.sleep(0)
    readers[cancelled].cancel()
    await asyncio.sleep(0)
    source.go.set()
    assert await readers[1 - cancelled] == "A"
    assert readers[cancelled].cancelled()
    assert source.loads == ["a"]


async def test_a_load_whose_callers_are_gone_is_kept() -> None:
    cache, source = Cache(100), Source()
    source.go.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cache.get("a", source.load("a")), 0.01)
    source.go.set()
    await cache.get("a", source.load("a"))
    assert source.loads == ["a"]


async def test_a_failed_load_fails_for_all_callers_and_is_tried_again() -> None:
    cache, source = Cache(100), Source()
    readers = (cache.get("bad", source.load("bad")) for _ in range(3))
    outcomes = await asyncio.gather(*readers, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["the disk is gone"] * 3
    assert source.loads == ["bad"]
    with pytest.raises(OSError, match="the disk is gone"):
        await cache.get("bad", source.load("bad"))
    assert source.loads == ["bad", "bad"]
    assert cache.held_bytes == 0


async def test_a_failed_load_without_callers_is_silent() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    cache, source = Cache(100), Source()
    source.go.clear()
    reader = asyncio.create_task(cache.get("bad", source.load("bad")))
    await asyncio.sleep(0)
    reader.cancel()
    source.go.set()
    async with asyncio.timeout(60):
        while "bad" in cache:
            await asyncio.sleep(0)
    assert source.loads == ["bad"]
    assert problems == []


async def test_closing_cancels_loads_under_way() -> None:
    cache, source = Cache(100), Source()
    await cache.get("a", source.load("a"))
    source.go.clear()
    reader = asyncio.create_task(cache.get("b", source.load("b")))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert (cache.held_bytes, len(cache)) == (0, 0)


async def test_reserved_room_is_taken_back_when_it_is_needed() -> None:
    cache, source = Cache(40), Source()
    evicted: list[str] = []

    def evict(key: str) -> Callable[[], None]:
        def evict_one() -> None:
            evicted.append(key)
            cache.unreserve(key)

        return evict_one

    await cache.get("a", source.load("a"))
    for key in ("x", "y"):
        cache.reserve(key, 15, evict(key))
    assert (cache.held_bytes, evicted) == (40, [])
    await cache.get("a", source.load("a"))
    assert source.loads == ["a"]
    await cache.get("b", source.load("b"))
    assert (cache.held_bytes, evicted) == (35, ["x"])
    cache.unreserve("y")
    cache.unreserve("y")
    assert (cache.held_bytes, len(cache), evicted) == (20, 2, ["x"])
