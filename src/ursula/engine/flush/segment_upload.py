"""Encodes rows as a segment and uploads it: all at once, or some rows at a time through a file.

The rows are handed over to a thread, which also frees them, because freeing that much memory at once would
block the event loop. The thread combines the chunks first, so that it does not hold both forms while it
writes the rows.
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
    """A thread, by default one of the loop's, and a pace, by default without rests.

    A component that uploads often should have a thread of its own: each thread that has done such work keeps
    memory for more of it.
    """

    thread: Executor | None = None
    pace: Pace = Pace()

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        """Run a function in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)

    def pause(self) -> Callable[[], None]:
        """The function that ends a step of work in the thread."""
        return TimeSlice(self.pace).end_in_thread


class SegmentRange(NamedTuple):
    """The group and the positions of the rows: after `first` and up to `last`."""

    group: int
    first: int
    last: int

    def new_key(self) -> str:
        """A new, unique key for the segment."""
        return segment_key(self.group, self.first, self.last)


async def upload_whole(
    store: Store, positions: SegmentRange, rows: pa.Table, executor: PacedExecutor
) -> StoredSegment:
    """Store a few rows, in the order of the log."""
    handed_over = [rows]
    del rows
    encoded = await executor.do(_encode, handed_over, positions, executor)
    key = positions.new_key()
    await store.put(key, memoryview(encoded.data))
    return segment_from_summary(key, positions.first, positions.last, encoded.summary)


async def upload_streamed(
    store: Store,
    unfinished: Unfinished,
    positions: SegmentRange,
    rows: AsyncIterator[pa.Table],
    executor: PacedExecutor,
) -> StoredSegment | None:
    """Store the rows of tables whose key ranges follow each other; None if there are no rows."""
    writer = await executor.do(_begin, unfinished, positions)
    try:
        async for table in rows:
            handed_over = [table]
            del table
            await executor.do(_write, writer, handed_over, executor)
        summary = await executor.do(_finish, writer)
        if not summary.row_count:
            return None
        key = positions.new_key()
        await store.put_file(key, writer.path)
    finally:
        await executor.do(writer.discard)  # the file is an object now, or it is not needed any more
    return segment_from_summary(key, positions.first, positions.last, summary)


def _encode(handed_over: list[pa.Table], positions: SegmentRange, executor: PacedExecutor) -> EncodedSegment:
    return encode_segment(handed_over.pop().combine_chunks(), *positions, pause=executor.pause())


def _begin(unfinished: Unfinished, positions: SegmentRange) -> SegmentWriter:
    with as_store_failure():
        return SegmentWriter(unfinished.new_path("segment"), *positions)


def _write(writer: SegmentWriter, handed_over: list[pa.Table], executor: PacedExecutor) -> None:
    with as_store_failure():
        writer.write(handed_over.pop().combine_chunks(), executor.pause())


def _finish(writer: SegmentWriter) -> SegmentSummary:
    with as_store_failure():
        return writer.finish()
