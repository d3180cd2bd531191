"""Reports which streams the bytes in memory belong to: walks over all buckets and streams in short steps.

A report is not a snapshot of one moment: a stream that changes during the walk is counted as it was found.
"""

from collections.abc import AsyncIterator, Iterator
from heapq import heappush, heapreplace, nlargest
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedList

from ...model.bucket import Bucket
from ...model.state import State
from ...model.stream.stream import Stream
from ..pacing import TimeSlice

NAMES_AT_ONCE = 256
LARGEST_COUNT = 100


class HotStream(NamedTuple):
    """A stream with hot bytes: in memory, and not in the store yet."""

    hot_bytes: int
    bucket: str
    stream: str


class HotTotals(NamedTuple):
    """All hot bytes, and how many streams are parked."""

    hot_bytes: int
    parked_streams: int


class HotBytesReport(NamedTuple):
    """All hot bytes, when the oldest of them were written (microseconds), and the streams with the most."""

    hot_bytes: int
    oldest_at: int | None
    largest: list[HotStream]
    parked_streams: int = 0


async def report_hot_bytes(state: State) -> HotBytesReport:
    """A report on one group."""
    hot_bytes = parked_streams = 0
    oldest_at = None
    largest: list[HotStream] = []
    time_slice = TimeSlice()
    async for bucket in _buckets(state, time_slice):
        for journal in bucket.all_parts():
            hot_bytes += journal.byte_count
            if journal.ats and (oldest_at is None or journal.ats[0] < oldest_at):
                oldest_at = journal.ats[0]
        parked_streams += len(bucket.parked)
        for names in _some_at_a_time(bucket.names):
            for name in names:
                stream = bucket.streams.get(name)
                size = 0 if stream is None else _hot_bytes(stream, state.stored_to)
                if len(largest) < LARGEST_COUNT:
                    if size:
                        heappush(largest, HotStream(size, bucket.name, name))
                elif size > largest[0].hot_bytes:
                    heapreplace(largest, HotStream(size, bucket.name, name))
            await time_slice.end()
    return HotBytesReport(hot_bytes, oldest_at, nlargest(LARGEST_COUNT, largest), parked_streams)


async def hot_totals(state: State) -> HotTotals:
    """The totals of one group: bytes of its streams, and bytes that only the feed of a bucket still has."""
    hot_bytes = parked_streams = 0
    async for bucket in _buckets(state, TimeSlice()):
        hot_bytes += sum(journal.byte_count for journal in bucket.all_parts())
        parked_streams += len(bucket.parked)
    return HotTotals(hot_bytes, parked_streams)


def merge_reports(reports: list[HotBytesReport]) -> HotBytesReport:
    """The reports of several groups as one."""
    oldest = [report.oldest_at for report in reports if report.oldest_at is not None]
    return HotBytesReport(
        hot_bytes=sum(report.hot_bytes for report in reports),
        oldest_at=min(oldest, default=None),
        largest=nlargest(LARGEST_COUNT, [stream for report in reports for stream in report.largest]),
        parked_streams=sum(report.parked_streams for report in reports),
    )


def _hot_bytes(stream: Stream, stored_to: int) -> int:
    """How many bytes of a stream are in memory and not in the store."""
    return max(0, stream.messages.end - max(stream.messages.start, stream.end_at(stored_to)))


async def _buckets(state: State, time_slice: TimeSlice) -> AsyncIterator[Bucket]:
    for names in _some_at_a_time(state.bucket_names):
        for name in names:
            bucket = state.buckets.get(name)
            if bucket is not None:  # it may have been deleted since its name was listed
                yield bucket
        await time_slice.end()


def _some_at_a_time(names: "SortedList[str]") -> Iterator[list[str]]:
    """The names in order, some at a time; they may change in between."""
    after = ""
    while piece := list(islice(names.irange(after, inclusive=(False, True)), NAMES_AT_ONCE)):
        yield piece
        after = piece[-1]
