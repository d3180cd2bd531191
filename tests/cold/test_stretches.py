"""Stretches of far objects: every byte once, from border to border."""

import asyncio
import os
from typing import NamedTuple

import pytest

from ursula.cold.objects.store import PART_BYTES
from ursula.cold.segment.range_fetch import RESTS_MAX, Stretches, up_to_border
from ursula.cold.segment.segment import ROW_GROUP_BYTES, Span

DATA = os.urandom(1 << 20) * 40 + b"the end"
KEY = "segments/g0/0-9-01J.parquet"


class Asked(NamedTuple):
    key: str
    start: int
    end: int


class Far:
    """A store that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        self.asked.append(Asked(key, start, end))
        return DATA[start:end]


def spans_of(size: int) -> list[Span]:
    nowhere = ("", "", "", 0)
    starts = range(0, len(DATA), size)
    return [
        Span(number, nowhere, nowhere, None, -1, -1, start, min(start + size, len(DATA)), 0, 1)
        for number, start in enumerate(starts)
    ]


@pytest.mark.parametrize("size", [ROW_GROUP_BYTES + 20_000, ROW_GROUP_BYTES, 700_001])
def test_who_reads_on_fetches_every_byte_once_and_from_border_to_border(size: int) -> None:
    far, spans, count = Far(), spans_of(size), 8
    stretches = Stretches(far)  # type: ignore[arg-type]

    async def read() -> None:
        at = 0
        while at < len(spans):
            wanted = up_to_border(spans[at : at + count])
            stretch = await stretches.get(KEY, wanted[0].start, wanted[-1].end, len(DATA))
            for span in wanted:
                assert bytes(stretch.between(span.start, span.end)) == DATA[span.start : span.end]
            at += len(wanted)

    asyncio.run(read())
    assert [asked.start for asked in far.asked] == [0, *(asked.end for asked in far.asked[:-1])]
    assert far.asked[-1].end == len(DATA)
    inside = [asked for asked in far.asked[:-1] if asked.end % PART_BYTES]
    assert len(inside) <= len(far.asked) // 2 if size < ROW_GROUP_BYTES else not inside


def test_only_some_rests_are_kept_and_a_missing_one_is_fetched_again() -> None:
    far = Far()
    stretches = Stretches(far)  # type: ignore[arg-type]
    end = PART_BYTES - 1000

    async def read() -> None:
        for number in range(RESTS_MAX + 1):
            await stretches.get(f"{KEY}{number}", 0, end, len(DATA))
        for number in (0, RESTS_MAX):
            stretch = await stretches.get(f"{KEY}{number}", end, end + 5000, len(DATA))
            assert bytes(stretch.between(end, end + 5000)) == DATA[end : end + 5000]
        await stretches.get(KEY, 0, len(DATA), len(DATA))

    asyncio.run(read())
    first, last, whole = far.asked[-3:]
    assert (first.start, last.start) == (end, PART_BYTES)
    assert whole.end == len(DATA), "nothing is asked for behind the end"
