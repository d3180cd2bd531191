"""Rows on their way to being a segment in the store: all at once, or some at a time through a file.

They are handed over to a thread, which lets go of them too: to free so much at once takes long. It makes one
piece of the many first, so that it does not hold both while they are written.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

import pyarrow as pa

from ...cold.objects.keys import segment_key
from ...cold.objects.store import Store
from ...cold.objects.temp_files import Unfinished, as_store_failure
from ...cold.segment.writer import EncodedSegment, SegmentSummary, SegmentWriter, encode_segment
from ...model.commands import StoredSegment
from ..pacing import Pace, TimeSlice
from ..segment_info import segment_from_summary

T = TypeVar("T")


class PacedExecutor(NamedTuple):
    """Who does it and how fast: a thread, by default one of the loop's, and a pace, by default without rests.

    Who does it often has a thread of his own: each that had such work keeps memory for more of it.
    """

    thread: Executor | None = None
    pace: Pace = Pace()

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        """Have something done in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)

    def pause(self) -> Callable[[], None]:
        """What ends a step of work in the thread."""
        return TimeSlice(self.pace).end_in_thread


class SegmentRange(NamedTuple):
    """Of which group and which positions the rows are: those after the first and up to the last."""

    group: int
    first: int
    last: int

    def new_key(self) -> str:
        """A name for the segment that no other has."""
        return segment_key(self.group, self.first, self.last)


async def upload_whole(
    store: Store, place: SegmentRange, rows: pa.Table, hand: PacedExecutor
) -> StoredSegment:
    """Store few rows, in the order of the log."""
    handed_over = [rows]
    del rows
    encoded = await hand.do(_encode, handed_over, place, hand)
    key = place.new_key()
    await store.put(key, memoryview(encoded.data))
    return segment_from_summary(key, place.first, place.last, encoded.summary)


async def upload_streamed(
    store: Store,
    unfinished: Unfinished,
    place: SegmentRange,
    rows: AsyncIterator[pa.Table],
    hand: PacedExecutor,
) -> StoredSegment | None:
    """Store rows of which each table belongs behind the one before; None if there are none."""
    writer = await hand.do(_begin, unfinished, place)
    try:
        async for table in rows:
            handed_over = [table]
            del table
            await hand.do(_write, writer, handed_over, hand)
        summary = await hand.do(_finish, writer)
        if not summary.row_count:
            return None
        key = place.new_key()
        await store.put_file(key, writer.path)
    finally:
        await hand.do(writer.discard)  # it is an object now, or not wanted
    return segment_from_summary(key, place.first, place.last, summary)


def _encode(handed_over: list[pa.Table], place: SegmentRange, hand: PacedExecutor) -> EncodedSegment:
    return encode_segment(handed_over.pop().combine_chunks(), *place, pause=hand.pause())


def _begin(unfinished: Unfinished, place: SegmentRange) -> SegmentWriter:
    with as_store_failure():
        return SegmentWriter(unfinished.new_path("segment"), *place)


def _write(writer: SegmentWriter, handed_over: list[pa.Table], hand: PacedExecutor) -> None:
    with as_store_failure():
        writer.write(handed_over.pop().combine_chunks(), hand.pause())


def _finish(writer: SegmentWriter) -> SegmentSummary:
    with as_store_failure():
        return writer.finish()
