"""The rows of a flush: the journals of all buckets up to a cut, as columns of a segment.

They are assembled in short steps on the event loop; threads sort, compress and write them.
"""

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ...cold.segment.schema import SEGMENT_SCHEMA
from ...model.change.append import APPEND
from ...model.commands import Producer
from ...model.journal import KIND_NAMES, NO_RECORD, Journal
from ...model.stream.blob_slice import BlobSlice
from ...model.stream.stream import Stream
from ..pacing import TimeSlice
from .ranges import STEP_ROWS, Parts, Ranges

STEP_BYTES = 512 * 1024

T = TypeVar("T")

_KIND_NAMES = pa.array(KIND_NAMES, pa.string())
_ZERO = pa.array([0], pa.int32())

Payloads = list[bytes | BlobSlice | None]
Fetch = Callable[[Sequence[BlobSlice]], Awaitable[list[bytes]]]


async def rows_of(parts: Parts, group: int, fetch: Fetch, time_slice: TimeSlice) -> pa.Table:
    """All rows of these parts of journals, in the order of the log within each; `fetch` reads blobs."""
    steps = (
        (part, range(first, min(first + STEP_ROWS, len(journal))))
        for part, (_, journal) in enumerate(parts)
        for first in range(0, len(journal), STEP_ROWS)
    )
    return await _table(parts, steps, group, fetch, time_slice)


async def rows_by_range(
    parts: Parts, group: int, fetch: Fetch, time_slice: TimeSlice
) -> AsyncIterator[pa.Table]:
    """The same rows, a few at a time, in tables whose key ranges follow each other."""
    for steps in await Ranges.of(parts, time_slice):
        yield await _table(parts, steps, group, fetch, time_slice)


async def _table(
    parts: Parts, steps: Iterable[tuple[int, Sequence[int]]], group: int, fetch: Fetch, time_slice: TimeSlice
) -> pa.Table:
    """The rows of these steps."""
    batches = []
    for part, step in steps:
        bucket, journal = parts[part]
        for rows, payloads in _small_steps(journal, step):
            if journal.slice_bytes:
                await _fetch_blobs(payloads, fetch)
            batches.append(_batch(bucket, journal, group, rows, payloads))
            await time_slice.end()
    return pa.Table.from_batches(batches, schema=SEGMENT_SCHEMA)


async def _fetch_blobs(payloads: Payloads, fetch: Fetch) -> None:
    """Replace the payloads that are in blobs with their bytes."""
    in_blobs = [(number, payload) for number, payload in enumerate(payloads) if type(payload) is BlobSlice]
    if in_blobs:
        fetched = await fetch([payload for _, payload in in_blobs])
        for (number, _), payload in zip(in_blobs, fetched, strict=True):
            payloads[number] = payload


def _small_steps(journal: Journal, rows: Sequence[int]) -> Iterator[tuple[Sequence[int], Payloads]]:
    """The rows in steps whose bytes are copied quickly; a larger row is a step of its own."""
    payloads = _picked(journal.payloads, rows)
    if sum(map(len, filter(None, payloads))) <= STEP_BYTES:  # type: ignore[arg-type]
        yield rows, payloads
        return
    begin = size = 0
    for number, payload in enumerate(payloads):
        more = 0 if payload is None else len(payload)
        if size + more > STEP_BYTES and number > begin:
            yield rows[begin:number], payloads[begin:number]
            begin, size = number, 0
        size += more
    yield rows[begin:], payloads[begin:]


def _picked(column: "Sequence[T]", rows: Sequence[int]) -> "list[T]":
    """Some rows of a column."""
    if isinstance(rows, range):
        return list(column[rows.start : rows.stop])
    return [column[row] for row in rows]


def _numbers(column: "array[int]", rows: Sequence[int]) -> "array[int]":
    """Some rows of a column of numbers."""
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return array(column.typecode, [column[row] for row in rows])


def _of_rows(journal: Journal, rows: Sequence[int]) -> tuple["array[int]", "array[int]"]:
    """The positions and times of some rows; the journal keeps them once per entry."""
    positions, ats = array("q"), array("q")
    entry, end = -1, 0
    first_rows, count = journal.first_rows, len(journal.first_rows)
    if isinstance(rows, range):
        row = rows.start
        while row < rows.stop:
            entry = bisect_right(first_rows, row) - 1 if entry < 0 else entry + 1
            end = min(rows.stop, first_rows[entry + 1] if entry + 1 < count else len(journal))
            positions += array("q", (journal.positions[entry],)) * (end - row)
            ats += array("q", (journal.ats[entry],)) * (end - row)
            row = end
        return positions, ats
    for row in rows:
        if row >= end:
            entry = bisect_right(first_rows, row, max(entry, 0)) - 1
            end = first_rows[entry + 1] if entry + 1 < count else len(journal)
            position, at = journal.positions[entry], journal.ats[entry]
        positions.append(position)
        ats.append(at)
    return positions, ats


def _batch(
    bucket: str,
    journal: Journal,
    group: int,
    rows: Sequence[int],
    payloads: Payloads,
) -> pa.RecordBatch:
    count = len(rows)
    positions, ats = _of_rows(journal, rows)
    of_rows = _picked(journal.streams, rows)
    # Each stream once: the columns of names are made from the numbers of the streams.
    streams: dict[Stream, int] = {stream: number for number, stream in enumerate(dict.fromkeys(of_rows))}
    numbers = _numbers_of(pa.int32(), array("i", map(streams.__getitem__, of_rows)))
    offsets = _numbers_of(pa.int64(), _numbers(journal.offsets, rows))
    kinds = _numbers(journal.kinds, rows)
    has_gaps = kinds.tobytes().count(APPEND) < count  # only appends have a payload
    lengths = map(len, payloads) if not has_gaps else [0 if p is None else len(p) for p in payloads]  # type: ignore[arg-type]
    sizes = _numbers_of(pa.int64(), array("q", lengths))
    columns = [
        pa.repeat(pa.scalar(group, pa.int32()), count),
        pa.repeat(bucket, count),
        pa.array([stream.name for stream in streams], pa.string()).take(numbers),
        pa.array([stream.incarnation for stream in streams], pa.string()).take(numbers),
        _KIND_NAMES.take(_numbers_of(pa.uint8(), kinds)),
        offsets,
        pc.add(offsets, sizes),
        _records(_numbers(journal.records, rows)),
        _numbers_of(pa.int64(), positions),
        _numbers_of(pa.int32(), _numbers(journal.indexes, rows)),
        _numbers_of(pa.timestamp("us", tz="UTC"), ats),
        pa.array([stream.content_type for stream in streams], pa.string()).take(numbers),
        *_producers(_picked(journal.producers, rows)),
        pa.array(payloads, pa.binary()) if has_gaps else _payloads(payloads, sizes),
        _events(journal, rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENT_SCHEMA)


def _producers(producers: "list[Producer | None]") -> list[pa.Array]:
    """The columns of the producers: id, epoch and sequence number."""
    if not any(producers):
        return [pa.nulls(len(producers), kind) for kind in (pa.string(), pa.int64(), pa.int64())]
    ids = pa.array([None if p is None else p.id for p in producers], pa.string())
    if not all(producers):
        numbers = [(None, None) if p is None else (p.epoch, p.seq) for p in producers]
        return [ids, *(pa.array(column, pa.int64()) for column in zip(*numbers, strict=True))]
    epochs, seqs = map(attrgetter("epoch"), producers), map(attrgetter("seq"), producers)
    return [ids, *(_numbers_of(pa.int64(), array("q", column)) for column in (epochs, seqs))]


def _payloads(payloads: Payloads, sizes: pa.Array) -> pa.Array:
    """The column of the messages; a single message, which may be large, is not copied."""
    ends = pa.concat_arrays([_ZERO, pc.cumulative_sum(sizes).cast(pa.int32())])
    data = payloads[0] if len(payloads) == 1 else b"".join(payloads)  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.binary(), len(payloads), [None, ends.buffers()[1], pa.py_buffer(data)])


def _numbers_of(kind: pa.DataType, numbers: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.tobytes())])


def _records(numbers: "array[int]") -> pa.Array:
    if numbers.count(NO_RECORD) == len(numbers):
        return pa.nulls(len(numbers), pa.int64())
    records = _numbers_of(pa.int64(), numbers)
    return pc.if_else(pc.equal(records, NO_RECORD), None, records)


def _events(journal: Journal, rows: Sequence[int]) -> pa.Array:
    if not journal.events:
        return pa.nulls(len(rows), pa.string())
    found = map(journal.events.get, rows)
    return pa.array([None if event is None else event.decode() for event in found], pa.string())
