"""A reader that falls behind does not make the log keep everything in memory."""

from collections.abc import Awaitable, Callable

import pytest

from ursula.log.follower import LIVE_ENTRIES_MAX, Follower
from ursula.log.interface import Entry

pytestmark = pytest.mark.anyio


async def test_a_follower_too_far_behind_returns_to_storage() -> None:
    stored: list[Entry] = []
    began: list[int] = []

    def open_stored(after: int) -> Callable[[], Awaitable[list[Entry]]]:
        began.append(after)
        batches = [[entry for entry in stored if entry.position > after], []]

        async def read() -> list[Entry]:
            return batches.pop(0)

        return read

    follower = Follower(0, open_stored)
    for position in range(1, 2 * LIVE_ENTRIES_MAX):
        stored.append(Entry(position, b""))
        follower.offer(stored[-1])
    assert [await anext(follower) for _ in stored] == stored
    assert began == [0, 0]
