"""Pieces: what one row group of a segment has of one stream, read as messages in memory are; and the rows
of a bucket back in the order of the log.

For the server and for Spark executors: the standard library and pyarrow only.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_KINDS = (
    "create",
    "fork",
    "undelete",
    "append",
    "attributes",
    "snapshot",
    "trim",
    "close",
    "delete",
    "expire",
)
"""In the order in which one command tells them of a stream."""

PLAIN_COLUMNS = ("payload",)
"""What must be read of a row group that has one stream only, and it has no ordinals."""

SOLE_COLUMNS = ("offset", "next_offset", "kind", "payload", "record", "position", "index", "event")
"""What must be read of a row group that has one stream only."""

PIECE_COLUMNS = ("bucket", "stream", "incarnation", *SOLE_COLUMNS)
"""What must be read of a row group to find pieces in it."""

_NOBODY = (-1, -1)


class Piece:
    """Consecutive messages of a stream. Its bytes are a copy: nothing else of the row group is held.

    An append of several messages may begin in the piece before this one, or go on in the next: then the
    `first_command` or `last_command` of both, position and index, are the same. Only JSON has such.
    """

    __slots__ = ("append_ends", "data", "ends", "first_command", "first_record", "last_command", "start")

    def __init__(
        self,
        start: int,
        ends: "array[int]",
        append_ends: "array[int]",
        data: bytes,
        first_record: int | None,
        first_command: tuple[int, int],
        last_command: tuple[int, int],
    ) -> None:
        self.start = start
        self.ends = ends
        self.append_ends = append_ends
        self.data = data
        self.first_record = first_record
        self.first_command = first_command
        self.last_command = last_command

    @classmethod
    def of(cls, table: pa.Table, bucket: str, stream: str, incarnation: str) -> "Piece | None":
        """The messages of a stream in a decoded row group; ValueError if some between them are not there."""
        first, last = _rows_of(table, (bucket, stream, incarnation))
        return cls.of_all(table.slice(first, last - first), stream)

    @classmethod
    def of_all(cls, rows: pa.Table, stream: str) -> "Piece | None":
        """The same of rows that are all of one stream: its name is not needed."""
        columns = dict(zip(rows.column_names, map(as_array, rows.columns), strict=True))
        data, kind = _joined(columns.pop("payload")), columns.pop("kind")
        if _joined(kind) != b"append" * len(kind):
            is_append = pc.equal(kind, "append")
            columns = {name: column.filter(is_append) for name, column in columns.items()}
        starts, ends = _integers(columns["offset"]), _integers(columns["next_offset"])
        if not ends:
            return None
        if starts[1:] != ends[:-1] or len(data) != ends[-1] - starts[0]:
            raise ValueError(f"messages of {stream} are missing between {starts[0]} and {ends[-1]}")
        record = columns["record"][0].as_py()
        if record is None:  # only JSON has several messages in an append: others of one command are a batch
            return cls(starts[0], ends, ends, data, None, _NOBODY, _NOBODY)
        position, index = columns["position"], columns["index"]
        is_frame = columns["event"].is_valid()  # in a batch of JSON the first message of an append says so
        return cls(
            starts[0],
            ends,
            _append_ends(columns["next_offset"], is_frame, position, index),
            data,
            record,
            _NOBODY if is_frame[0].as_py() else (position[0].as_py(), index[0].as_py()),
            (position[-1].as_py(), index[-1].as_py()),
        )

    @classmethod
    def of_plain(cls, payloads: pa.Array, start: int, last: int) -> "Piece":
        """The same of rows that are all of a stream without ordinals, the last of them a message.

        At `start` the first message begins, at `last` the last one.
        """
        data = _joined(payloads)
        _, places, _ = payloads.buffers()
        bounds = pa.Array.from_buffers(
            pa.int32(), len(payloads) + 1, [None, places], offset=payloads.offset
        ).cast(pa.int64())
        ends = pc.add(bounds.slice(1), start - bounds[0].as_py())
        before = ends[-2].as_py() if len(ends) > 1 else start
        if before != last:
            raise ValueError(f"messages are missing between {start} and {start + len(data)}")
        numbers = _integers(ends.filter(payloads.is_valid()) if payloads.null_count else ends)
        return cls(start, numbers, numbers, data, None, _NOBODY, _NOBODY)

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.ends[-1]

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.data) + 8 * (len(self.ends) + len(self.append_ends)) + 512

    def is_boundary(self, offset: int) -> bool:
        """Whether a message begins or ends at the offset."""
        if offset == self.start:
            return True
        index = bisect_left(self.ends, offset)
        return index < len(self.ends) and self.ends[index] == offset

    def count_before(self, offset: int) -> int:
        """How many of the messages end at or before the offset."""
        return bisect_right(self.ends, offset)

    def append_end_after(self, offset: int) -> int:
        """Where the append ends, in this piece, that holds the byte at the offset; at the end, the offset."""
        index = bisect_right(self.append_ends, offset)
        return self.append_ends[index] if index < len(self.append_ends) else offset

    def message_ends(self, offset: int, limit: int) -> "array[int]":
        """The ends of the messages that lie between the offset and the limit."""
        return self.ends[bisect_right(self.ends, offset) : bisect_right(self.ends, limit)]

    def read(self, offset: int, limit: int, bytes_max: int, whole: bool, into: list[Any], split: bool) -> int:
        """Add what lies between offset and limit to `into`, about `bytes_max` of it; return where it ends.

        With `whole`, messages are not cut for size, and one is taken however large it is if `into` is empty.
        Without, exactly `bytes_max` bytes are taken where there are as many. With `split`, every message
        is by itself; without, all are one.
        """
        ends = self.ends
        limit = min(limit, ends[-1])
        if offset >= limit:
            return offset
        stop = min(limit, offset + bytes_max)
        first = bisect_right(ends, offset)
        if whole and stop < limit:
            last = bisect_right(ends, stop, first)
            if last > first:
                stop = ends[last - 1]
            elif into:
                return offset
            else:
                stop = min(ends[first], limit)
        data, start = self.data, self.start
        if split:
            for end in ends[first : bisect_left(ends, stop, first)]:
                into.append(data[offset - start : end - start])
                offset = end
        into.append(data[offset - start : stop - start])  # all of it is no copy
        return stop


def rows_in_order(table: pa.Table, bucket: str, after: int, until: int) -> pa.Table:
    """The rows of a bucket with positions after one and up to another, as they happened.

    The table is one or more row groups of a segment, in the order of the file.
    """
    position = table["position"]
    wanted = pc.and_(pc.greater(position, after), pc.less_equal(position, until))
    rows = table.filter(pc.and_(pc.equal(table["bucket"], bucket), wanted))
    keys = {name: rows[name] for name in ("position", "index", "stream", "incarnation")}
    keys["kind"] = pc.index_in(rows["kind"], pa.array(_KINDS))
    keys["row"] = pa.arange(0, rows.num_rows)
    return rows.take(pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]))


def _rows_of(table: pa.Table, name: tuple[str, ...]) -> tuple[int, int]:
    """Where the rows of a stream, which lie together, begin and end: found without looking at all others."""
    columns = [as_array(table[column]) for column in ("bucket", "stream", "incarnation")]

    def name_at(row: int) -> tuple[str, ...]:
        return tuple(column[row].as_py() or "" for column in columns)

    count = table.num_rows
    if count and name_at(0) == name == name_at(count - 1):
        return 0, count
    first = bisect_left(range(count), name, key=name_at)
    return first, bisect_right(range(count), name, first, key=name_at)


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without a copy where it is."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _integers(values: pa.Array) -> "array[int]":
    numbers = array("q")
    if len(values):
        numbers.frombytes(
            memoryview(values.buffers()[1])[8 * values.offset : 8 * (values.offset + len(values))]
        )
    return numbers


def _joined(values: pa.Array) -> bytes:
    """The bytes of all values, as they lie one behind the other; nulls take none."""
    _, places, data = values.buffers()
    if data is None or not len(values):
        return b""
    bounds = memoryview(places).cast("i")
    return bytes(memoryview(data)[bounds[values.offset] : bounds[values.offset + len(values)]])


def _append_ends(ends: pa.Array, is_frame: pa.Array, *command: pa.Array) -> "array[int]":
    """The ends of the messages after which another append begins, and of the last."""
    last = len(ends) - 1
    changed = pc.or_(*(pc.not_equal(column.slice(1), column.slice(0, last)) for column in command))
    changed = pc.or_(changed, is_frame.slice(1))
    if changed.true_count == last:
        return _integers(ends)
    return _integers(pa.concat_arrays([ends.slice(0, last).filter(changed), ends.slice(last)]))
