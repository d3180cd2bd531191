"""Ranges of remote objects: every byte is fetched once, from part boundary to part boundary."""

import os
from typing import NamedTuple

import pytest

from ursula.cold.objects.store import PART_BYTES
from ursula.cold.segment.footer import RowGroup
from ursula.cold.segment.range_fetch import SURPLUS_MAX, RangeFetcher, up_to_part_boundary
from ursula.cold.segment.schema import ROW_GROUP_BYTES

pytestmark = pytest.mark.anyio

DATA = os.urandom(1 << 20) * 40 + b"the end"
KEY = "segments/g0/0-9-01J.parquet"


class Asked(NamedTuple):
    key: str
    start: int
    end: int


class RemoteStore:
    """A store that records the ranges it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self.asked.append(Asked(key, start, end))
        return DATA[start:end]


def row_groups_of(size: int) -> list[RowGroup]:
    nowhere = ("", "", "", 0)
    starts = range(0, len(DATA), size)
    return [
        RowGroup(number, nowhere, nowhere, None, -1, -1, start, min(start + size, len(DATA)), 0, 1)
        for number, start in enumerate(starts)
    ]


@pytest.mark.parametrize("size", [ROW_GROUP_BYTES + 20_000, ROW_GROUP_BYTES, 700_001])
async def test_a_sequential_reader_fetches_every_byte_once_and_from_boundary_to_boundary(size: int) -> None:
    remote, row_groups, count = RemoteStore(), row_groups_of(size), 8
    fetcher = RangeFetcher(remote)  # type: ignore[arg-type]
    at = 0
    while at < len(row_groups):
        wanted = up_to_part_boundary(row_groups[at : at + count])
        fetched = await fetcher.get(KEY, wanted[0].start, wanted[-1].end, len(DATA))
        for row_group in wanted:
            assert (
                bytes(fetched.between(row_group.start, row_group.end))
                == DATA[row_group.start : row_group.end]
            )
        at += len(wanted)
    assert [asked.start for asked in remote.asked] == [0, *(asked.end for asked in remote.asked[:-1])]
    assert remote.asked[-1].end == len(DATA)
    inside = [asked for asked in remote.asked[:-1] if asked.end % PART_BYTES]
    assert len(inside) <= len(remote.asked) // 2 if size < ROW_GROUP_BYTES else not inside


async def test_only_some_surplus_is_kept_and_what_is_missing_is_fetched_again() -> None:
    remote = RemoteStore()
    fetcher = RangeFetcher(remote)  # type: ignore[arg-type]
    end = PART_BYTES - 1000
    for number in range(SURPLUS_MAX + 1):
        await fetcher.get(f"{KEY}{number}", 0, end, len(DATA))
    for number in (0, SURPLUS_MAX):
        fetched = await fetcher.get(f"{KEY}{number}", end, end + 5000, len(DATA))
        assert bytes(fetched.between(end, end + 5000)) == DATA[end : end + 5000]
    await fetcher.get(KEY, 0, len(DATA), len(DATA))
    first, last, whole = remote.asked[-3:]
    assert (first.start, last.start) == (end, PART_BYTES)
    assert whole.end == len(DATA), "nothing is asked for beyond the end"
