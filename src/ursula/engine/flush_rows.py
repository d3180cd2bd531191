"""The rows of a flush: the journals of all buckets up to a cut, as columns of a segment.

Put together in small steps; the sorting, compressing and writing of all of it is for threads.
"""

from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import TypeVar

import pyarrow as pa

from ..cold.schema import SEGMENT_SCHEMA
from ..model.append import APPEND
from ..model.journal import KIND_NAMES, NO_RECORD, Journal
from ..model.part import Part
from ..model.stream import Stream
from .flush_ranges import STEP_ROWS, Parts, Ranges
from .slices import Turn

STEP_BYTES = 512 * 1024

T = TypeVar("T")

_KIND_NAMES = pa.array(KIND_NAMES, pa.string())

Fetch = Callable[[Sequence[Part]], Awaitable[list[bytes]]]


async def rows_of(parts: Parts, group: int, fetch: Fetch) -> pa.Table:
    """All rows of these parts of journals, in the order of the log within each; `fetch` reads blobs."""
    steps = (
        (part, range(first, min(first + STEP_ROWS, len(journal))))
        for part, (_, journal) in enumerate(parts)
        for first in range(0, len(journal), STEP_ROWS)
    )
    return await _table(parts, steps, group, fetch)


async def rows_by_range(parts: Parts, group: int, fetch: Fetch) -> AsyncIterator[pa.Table]:
    """The same rows, a few at a time, those of each table behind those of the one before."""
    for steps in await Ranges.of(parts):
        yield await _table(parts, steps, group, fetch)


async def _table(
    parts: Parts, steps: Iterable[tuple[int, Sequence[int]]], group: int, fetch: Fetch
) -> pa.Table:
    """These rows of these parts."""
    batches = []
    turn = Turn()
    for part, step in steps:
        bucket, journal = parts[part]
        for rows in _stretches(journal, step):
            payloads = _picked(journal.payloads, rows)
            if Part in map(type, payloads):
                named = [number for number, payload in enumerate(payloads) if type(payload) is Part]
                fetched = await fetch([payloads[number] for number in named])  # type: ignore[misc]
                for number, payload in zip(named, fetched, strict=True):
                    payloads[number] = payload
            batches.append(_batch(bucket, journal, group, rows, payloads))
            await turn.end()
    return pa.Table.from_batches(batches, schema=SEGMENT_SCHEMA)


def _stretches(journal: Journal, rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """The rows, so many at a time that their bytes are copied quickly; what is larger is by itself."""
    payloads = _picked(journal.payloads, rows)
    if sum(len(payload) for payload in payloads if payload) <= STEP_BYTES:
        yield rows
        return
    begin = size = 0
    for number, payload in enumerate(payloads):
        more = 0 if payload is None else len(payload)
        if size + more > STEP_BYTES and number > begin:
            yield rows[begin:number]
            begin, size = number, 0
        size += more
    yield rows[begin:]


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
    """Position and time of some rows, which the journal keeps once for an entry."""
    positions, ats = array("q"), array("q")
    entry, end = -1, 0
    first_rows, count = journal.first_rows, len(journal.first_rows)
    if isinstance(rows, range):
        row = rows.start
        while row < rows.stop:
            entry = bisect_right(first_rows, row) - 1 if entry < 0 else entry + 1
            end = min(rows.stop, first_rows[entry + 1] if entry + 1 < count else len(journal))
            positions.extend(repeat(journal.positions[entry], end - row))
            ats.extend(repeat(journal.ats[entry], end - row))
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
    payloads: "list[bytes | Part | None]",
) -> pa.RecordBatch:
    count = len(rows)
    positions, ats = _of_rows(journal, rows)
    of_rows = _picked(journal.streams, rows)
    # Each once: names are made into columns by their numbers.
    streams: dict[Stream, int] = {stream: number for number, stream in enumerate(dict.fromkeys(of_rows))}
    numbers = _numbers_of(pa.int32(), array("i", map(streams.__getitem__, of_rows)))
    offsets = _numbers(journal.offsets, rows)
    kinds = _numbers(journal.kinds, rows)
    has_gaps = kinds.tobytes().count(APPEND) < count  # only appends have a payload
    if has_gaps:
        ends = array("q", [o if p is None else o + len(p) for o, p in zip(offsets, payloads, strict=True)])
    else:
        ends = array("q", map(add, offsets, map(len, payloads)))  # type: ignore[arg-type]
    producers = _picked(journal.producers, rows)
    events = journal.events
    is_named = any(producers)
    columns = [
        pa.repeat(pa.scalar(group, pa.int32()), count),
        pa.repeat(bucket, count),
        pa.array([stream.name for stream in streams], pa.string()).take(numbers),
        pa.array([stream.incarnation for stream in streams], pa.string()).take(numbers),
        _KIND_NAMES.take(_numbers_of(pa.uint8(), kinds)),
        _numbers_of(pa.int64(), offsets),
        _numbers_of(pa.int64(), ends),
        _records(_numbers(journal.records, rows)),
        _numbers_of(pa.int64(), positions),
        _numbers_of(pa.int32(), _numbers(journal.indexes, rows)),
        _numbers_of(pa.timestamp("us", tz="UTC"), ats),
        pa.array([stream.content_type for stream in streams], pa.string()).take(numbers),
        _optional([None if p is None else p.id for p in producers] if is_named else None, count, pa.string()),
        _optional(
            [None if p is None else p.epoch for p in producers] if is_named else None, count, pa.int64()
        ),
        _optional([None if p is None else p.seq for p in producers] if is_named else None, count, pa.int64()),
        pa.array(payloads, pa.binary()) if has_gaps else _payloads(payloads),
        _optional([_text(events.get(row)) for row in rows] if events else None, count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENT_SCHEMA)


def _payloads(payloads: "list[bytes | Part | None]") -> pa.Array:
    """The messages, one in each row; one by itself, which may be large, is not copied."""
    ends = array("i", [0, *accumulate(map(len, payloads))])  # type: ignore[arg-type]
    data = payloads[0] if len(payloads) == 1 else b"".join(payloads)  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.binary(), len(payloads), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _numbers_of(kind: pa.DataType, numbers: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.tobytes())])


def _records(numbers: "array[int]") -> pa.Array:
    if numbers.count(NO_RECORD) == len(numbers):
        return pa.nulls(len(numbers), pa.int64())
    return pa.array([None if number == NO_RECORD else number for number in numbers], pa.int64())


def _optional(
    values: "list[str | None] | list[int | None] | None", count: int, kind: pa.DataType
) -> pa.Array:
    return pa.nulls(count, kind) if values is None else pa.array(values, kind)


def _text(event: bytes | None) -> str | None:
    return None if event is None else event.decode()
