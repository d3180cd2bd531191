"""The rows of a flush: the journals of all buckets up to a cut, as columns of a segment.

Put together in small steps; the sorting, compressing and writing of all of it is for threads.
"""

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from ..cold.schema import SEGMENT_SCHEMA
from ..model.journal import KIND_NAMES, NO_RECORD, Journal
from ..model.part import Part
from ..model.stream import Stream
from .slices import Turn

STEP_ROWS = 1024

_KIND_NAMES = pa.array(KIND_NAMES, pa.string())

Fetch = Callable[[Sequence[Part]], Awaitable[list[bytes]]]


async def rows_of(parts: Sequence[tuple[str, Journal]], group: int, fetch: Fetch) -> pa.Table:
    """All rows of these parts of journals, in the order of the log within each; `fetch` reads blobs."""
    batches = []
    turn = Turn()
    for bucket, journal in parts:
        for first in range(0, len(journal), STEP_ROWS):
            last = min(first + STEP_ROWS, len(journal))
            payloads = journal.payloads[first:last]
            named = [number for number, payload in enumerate(payloads) if type(payload) is Part]
            if named:
                fetched = await fetch([payloads[number] for number in named])  # type: ignore[misc]
                for number, payload in zip(named, fetched, strict=True):
                    payloads[number] = payload
            batches.append(_batch(bucket, journal, group, first, last, payloads))
            await turn.end()
    return pa.Table.from_batches(batches, schema=SEGMENT_SCHEMA)


def _of_rows(journal: Journal, first: int, last: int) -> tuple["array[int]", "array[int]"]:
    """Position and time of some rows, which the journal keeps once for an entry."""
    positions, ats = array("q"), array("q")
    entry = bisect_right(journal.first_rows, first) - 1
    while first < last:
        following = entry + 1
        end = journal.first_rows[following] if following < len(journal.first_rows) else len(journal)
        count = min(end, last) - first
        positions.extend([journal.positions[entry]] * count)
        ats.extend([journal.ats[entry]] * count)
        first, entry = first + count, following
    return positions, ats


def _batch(
    bucket: str,
    journal: Journal,
    group: int,
    first: int,
    last: int,
    payloads: "list[bytes | Part | None]",
) -> pa.RecordBatch:
    count = last - first
    positions, ats = _of_rows(journal, first, last)
    streams: dict[Stream, int] = {}  # each once: names are made into columns by their numbers
    numbers = pa.array([streams.setdefault(s, len(streams)) for s in journal.streams[first:last]], pa.int32())
    offsets = journal.offsets[first:last]
    ends = array("q", [o if p is None else o + len(p) for o, p in zip(offsets, payloads, strict=True)])
    producers = journal.producers[first:last]
    events = journal.events
    is_named = any(producers)
    columns = [
        pa.repeat(pa.scalar(group, pa.int32()), count),
        pa.repeat(bucket, count),
        pa.array([stream.name for stream in streams], pa.string()).take(numbers),
        pa.array([stream.incarnation for stream in streams], pa.string()).take(numbers),
        _KIND_NAMES.take(_bytes(journal.kinds[first:last])),
        _integers(offsets),
        _integers(ends),
        _records(journal.records[first:last]),
        _integers(positions),
        pa.array(journal.indexes[first:last], pa.int32()),
        _integers(ats).cast(pa.timestamp("us", tz="UTC")),
        pa.array([stream.content_type for stream in streams], pa.string()).take(numbers),
        _optional([None if p is None else p.id for p in producers] if is_named else None, count, pa.string()),
        _optional(
            [None if p is None else p.epoch for p in producers] if is_named else None, count, pa.int64()
        ),
        _optional([None if p is None else p.seq for p in producers] if is_named else None, count, pa.int64()),
        pa.array(payloads, pa.binary()),
        _optional(
            [_text(events.get(row)) for row in range(first, last)] if events else None, count, pa.string()
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENT_SCHEMA)


def _integers(numbers: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.tobytes())])


def _bytes(numbers: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), len(numbers), [None, pa.py_buffer(numbers.tobytes())])


def _records(numbers: "array[int]") -> pa.Array:
    if all(number == NO_RECORD for number in numbers):
        return pa.nulls(len(numbers), pa.int64())
    return pa.array([None if number == NO_RECORD else number for number in numbers], pa.int64())


def _optional(
    values: "list[str | None] | list[int | None] | None", count: int, kind: pa.DataType
) -> pa.Array:
    return pa.nulls(count, kind) if values is None else pa.array(values, kind)


def _text(event: bytes | None) -> str | None:
    return None if event is None else event.decode()
