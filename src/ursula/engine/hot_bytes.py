"""Where the bytes are: a walk over all buckets and streams in small steps, between which others go on.

It is as of no single moment: what changes while it walks is counted as it was found.
"""

from collections.abc import AsyncIterator, Iterator
from heapq import heappush, heapreplace, nlargest
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedList

from ..model.bucket import Bucket
from ..model.state import State
from ..model.stream.stream import Stream
from .pacing import TimeSlice

PIECE = 256
LARGEST_COUNT = 100


class HotStream(NamedTuple):
    """A stream with bytes in memory that are not in the store yet."""

    hot_bytes: int
    bucket: str
    stream: str


class HotTotals(NamedTuple):
    """All bytes in memory, and how many streams are kept as their rows alone."""

    hot_bytes: int
    parked_streams: int


class HotBytesReport(NamedTuple):
    """All bytes in memory, when the oldest of them came (microseconds), and the streams with the most."""

    hot_bytes: int
    oldest_at: int | None
    largest: list[HotStream]
    parked_streams: int = 0


async def report_hot_bytes(state: State) -> HotBytesReport:
    """Walk over everything."""
    hot_bytes = parked_streams = 0
    oldest_at = None
    largest: list[HotStream] = []
    turn = TimeSlice()
    async for bucket in _buckets(state, turn):
        for journal in bucket.all_parts():
            hot_bytes += journal.byte_count
            if journal.ats and (oldest_at is None or journal.ats[0] < oldest_at):
                oldest_at = journal.ats[0]
        parked_streams += len(bucket.parked)
        for names in _pieces(bucket.names):
            for name in names:
                stream = bucket.streams.get(name)
                size = 0 if stream is None else _hot_bytes(stream, state.stored_to)
                if len(largest) < LARGEST_COUNT:
                    if size:
                        heappush(largest, HotStream(size, bucket.name, name))
                elif size > largest[0].hot_bytes:
                    heapreplace(largest, HotStream(size, bucket.name, name))
            await turn.end()
    return HotBytesReport(hot_bytes, oldest_at, nlargest(LARGEST_COUNT, largest), parked_streams)


async def hot_totals(state: State) -> HotTotals:
    """All bytes in memory: those that streams show, and those that only their bucket's feed still has."""
    hot_bytes = parked_streams = 0
    async for bucket in _buckets(state, TimeSlice()):
        hot_bytes += sum(journal.byte_count for journal in bucket.all_parts())
        parked_streams += len(bucket.parked)
    return HotTotals(hot_bytes, parked_streams)


def merge_reports(surveys: list[HotBytesReport]) -> HotBytesReport:
    """Several groups as one."""
    oldest = [found.oldest_at for found in surveys if found.oldest_at is not None]
    return HotBytesReport(
        sum(found.hot_bytes for found in surveys),
        min(oldest, default=None),
        nlargest(LARGEST_COUNT, [stream for found in surveys for stream in found.largest]),
        sum(found.parked_streams for found in surveys),
    )


def _hot_bytes(stream: Stream, stored_to: int) -> int:
    """Bytes that a stream has in memory and not in the store."""
    return max(0, stream.messages.end - max(stream.messages.start, stream.end_at(stored_to)))


async def _buckets(state: State, turn: TimeSlice) -> AsyncIterator[Bucket]:
    for names in _pieces(state.bucket_names):
        for name in names:
            bucket = state.buckets.get(name)
            if bucket is not None:  # it was there when the piece was taken
                yield bucket
        await turn.end()


def _pieces(names: "SortedList[str]") -> Iterator[list[str]]:
    """The names in order, some at a time; they may change in between."""
    after = ""
    while piece := list(islice(names.irange(after, inclusive=(False, True)), PIECE)):
        yield piece
        after = piece[-1]
