"""Dividing a large flush into ranges of keys: which rows of the journals belong to each range.

The order is found without touching the payloads: streams are numbered by their names, rows are sorted by the
number of their stream and their offset, and that order is divided into ranges of about the same size. Rows
with the same stream and offset are already in the order of the log.
"""

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from ...model.journal import Journal
from ...model.stream.stream import Stream
from ..pacing import TimeSlice

LARGE_BYTES = 16 * 1024 * 1024
"""A flush of up to this size is done at once."""

RANGE_BYTES = 8 * 1024 * 1024
ROW_BYTES = 256
"""About how much memory a row takes as columns, in addition to its payload."""

STEP_ROWS = 1024

Parts = Sequence[tuple[str, Journal]]
"""Parts of journals, each with its bucket; the parts of one bucket are in the order of the log."""


def is_large(parts: Parts) -> bool:
    """Whether these rows, with the blobs that they refer to, are too large to be in memory at once."""
    return sum(journal.memory_bytes + journal.slice_bytes for _, journal in parts) > LARGE_BYTES


class Ranges:
    """The rows of some parts, in ranges that follow each other in the order of the segment."""

    def __init__(self, parts: Parts, ranges: list[pa.Array]) -> None:
        self._starts = [0, *accumulate(len(journal) for _, journal in parts)]
        self._parts = parts
        self._ranges = ranges

    @classmethod
    async def of(cls, parts: Parts, time_slice: TimeSlice) -> "Ranges":
        """Measure the rows of each stream, and divide them into ranges."""
        streams: dict[Stream, int] = {}
        names: list[pa.RecordBatch] = []
        numbers, sizes = array("i"), array("q")
        for bucket, journal in parts:
            for first in range(0, len(journal), STEP_ROWS):
                known = len(streams)
                owners = journal.streams[first : first + STEP_ROWS]
                numbers.extend([streams.setdefault(stream, len(streams)) for stream in owners])
                sizes.extend(_sizes(journal, first))
                if len(streams) > known:
                    names.append(_names(bucket, dict.fromkeys(s for s in owners if streams[s] >= known)))
                await time_slice.end()
        while streams:  # freeing a great many at once takes too long
            for _ in range(min(STEP_ROWS, len(streams))):
                streams.popitem()
            await time_slice.end()
        offsets = [journal.offsets for _, journal in parts]
        return cls(parts, await asyncio.to_thread(_cut, names, numbers, offsets, sizes))

    def __iter__(self) -> Iterator[Iterator[tuple[int, Sequence[int]]]]:
        """For each range, its rows, as numbers of parts and of their rows."""
        return map(self._by_part, self._ranges)

    def _by_part(self, rows: pa.Array) -> Iterator[tuple[int, Sequence[int]]]:
        numbers = memoryview(rows.buffers()[1]).cast("q")[rows.offset : rows.offset + len(rows)]
        begin = 0
        while begin < len(numbers):
            part = bisect_right(self._starts, numbers[begin]) - 1
            end = bisect_left(numbers, self._starts[part + 1], begin)
            first = self._starts[part]
            for at in range(begin, end, STEP_ROWS):
                yield part, [number - first for number in numbers[at : min(at + STEP_ROWS, end)]]
            begin = end


def _sizes(journal: Journal, first: int) -> list[int]:
    """About how much memory each of some rows takes."""
    payloads = journal.payloads[first : first + STEP_ROWS]
    sizes = [ROW_BYTES if payload is None else ROW_BYTES + len(payload) for payload in payloads]
    if journal.events:
        for number in range(len(sizes)):
            sizes[number] += len(journal.events.get(first + number, b""))
    return sizes


def _names(bucket: str, streams: dict[Stream, None]) -> pa.RecordBatch:
    """The columns that streams are sorted by."""
    columns = [
        pa.repeat(bucket, len(streams)),
        pa.array([stream.name for stream in streams], pa.string()),
        pa.array([stream.incarnation for stream in streams], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, ["bucket", "stream", "incarnation"])


def _cut(
    names: list[pa.RecordBatch], numbers: "array[int]", offsets: list["array[int]"], sizes: "array[int]"
) -> list[pa.Array]:
    """The rows of each range, in the order of the log."""
    ranks = _ranks(pa.Table.from_batches(names).combine_chunks())
    keys = {
        "stream": ranks.take(_column(numbers, pa.int32())),
        "offset": pa.concat_arrays([_column(column, pa.int64()) for column in offsets]),
        "row": pa.arange(0, len(numbers)),
    }
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]).cast(pa.int64())
    del keys
    sums = pc.cumulative_sum(_column(sizes, pa.int64()).take(order))
    number = pc.divide(sums, RANGE_BYTES)
    changes = pc.indices_nonzero(pc.not_equal(number.slice(1), number.slice(0, len(number) - 1)))
    bounds = [0, *(change + 1 for change in changes.to_pylist()), len(order)]
    ranges = []
    for first, last in pairwise(bounds):
        rows = order.slice(first, last - first)
        ranges.append(rows.take(pc.array_sort_indices(rows)))
    return ranges


def _ranks(names: pa.Table) -> pa.Array:
    """For each stream, its number when all are sorted by name; equal streams have equal numbers."""
    order = pc.sort_indices(names, [(name, "ascending") for name in names.column_names])
    names = names.take(order).combine_chunks()
    later, earlier = names.slice(1), names.slice(0, names.num_rows - 1)
    is_new = [pc.not_equal(later[name], earlier[name]) for name in names.column_names]
    steps = pc.or_(is_new[0], pc.or_(is_new[1], is_new[2])).combine_chunks().cast(pa.int32())
    ranks = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), steps]))
    return ranks.take(pc.array_sort_indices(order))


def _column(numbers: "array[int]", kind: pa.DataType) -> pa.Array:
    """An array of numbers as a column, without a copy; it must not be changed any more."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
