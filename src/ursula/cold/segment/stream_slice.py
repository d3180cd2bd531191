"""Stream slices: the messages of one stream in one row group, read just like messages in memory; and the rows
of a bucket, sorted back into the order of the log.

For the server and for Spark executors: the standard library and pyarrow only.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...ranges import MessageRange
from .schema import NAME_COLUMNS

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
"""The events that one command may cause for a stream, in this order."""

PLAIN_COLUMNS = ("payload",)
"""The columns to read of a row group with a single stream that has no ordinals."""

SINGLE_COLUMNS = ("offset", "next_offset", "kind", "payload", "record", "position", "index", "event")
"""The columns to read of a row group with a single stream."""

SLICE_COLUMNS = (*NAME_COLUMNS, *SINGLE_COLUMNS)
"""The columns to read of a row group with several streams."""

NAMES_LISTED = 1024
"""Up to how many names of streams are turned into a list; more than that remain columns."""

_NO_COMMAND = (-1, -1)
_SET, _UNSET = b"\1", b"\0"


class StreamSlice(MessageRange):
    """Consecutive messages of a stream. Their bytes are contiguous in `data`, which may have more bytes.

    An append of several messages may begin in the slice before this one, or continue in the next. Then the
    last command of the one and the first command of the other, each a position and an index, are the same.
    Only JSON streams have such appends.
    """

    __slots__ = (
        "append_ends",
        "base",
        "data",
        "ends",
        "first_command",
        "first_record",
        "last_command",
        "start",
    )

    append_ends: "array[int]"

    def __init__(
        self,
        start: int,
        ends: "array[int]",
        data: bytes,
        data_start: int = 0,
        append_ends: "array[int] | None" = None,
        first_record: int | None = None,
        first_command: tuple[int, int] = _NO_COMMAND,
        last_command: tuple[int, int] = _NO_COMMAND,
    ) -> None:
        self.start = start
        self.ends = ends
        self.data = data
        self.base = start - data_start  # the offset that the first byte of the data would have
        self.append_ends = ends if append_ends is None else append_ends
        self.first_record = first_record
        self.first_command = first_command
        self.last_command = last_command

    @classmethod
    def of_plain(cls, payloads: pa.Array, start: int, last: int) -> "StreamSlice":
        """The messages of rows that all belong to one stream without ordinals; the last row is a message.

        The first message begins at `start`, the last one at `last`.
        """
        data = _joined(payloads)
        _, offsets, _ = payloads.buffers()
        bounds = pa.Array.from_buffers(
            pa.int32(), len(payloads) + 1, [None, offsets], offset=payloads.offset
        ).cast(pa.int64())
        ends = pc.add(bounds.slice(1), start - bounds[0].as_py())
        before = ends[-2].as_py() if len(ends) > 1 else start
        if before != last:
            raise ValueError(f"messages are missing between {start} and {start + len(data)}")
        numbers = _integers(ends.filter(payloads.is_valid()) if payloads.null_count else ends)
        return cls(start, numbers, data)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self.data) + 8 * (len(self.ends) + len(self.append_ends)) + 512

    def read(self, offset: int, limit: int, bytes_max: int, whole: bool, into: list[Any], split: bool) -> int:
        """Add the bytes between offset and limit to `into`, about `bytes_max` of them; return where they end.

        With `whole`, no message is cut, and if `into` is empty, the first one is added however large it is.
        With `split`, every message is an item of its own; otherwise all are one item.
        """
        first, _, stop = self.cut(offset, limit, bytes_max, whole, not into)
        if stop == offset:
            return offset
        ends, data, base = self.ends, self.data, self.base
        if split:
            for end in ends[first : bisect_left(ends, stop, first)]:
                into.append(data[offset - base : end - base])
                offset = end
        into.append(data[offset - base : stop - base])  # no copy if this is all of the data
        return stop


class _ManyNames(Sequence[tuple[str, ...]]):
    """The names of a great many streams, in order, as columns: smaller than a list, but slower to search."""

    def __init__(self, columns: list[pa.Array]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: int) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(column[number].as_py() for column in self._columns)


class RowGroupStreams:
    """The messages in a decoded row group, stream by stream; prepared once, so that slices are cheap.

    Without columns that name streams, all rows belong to one stream.
    """

    def __init__(self, table: pa.Table) -> None:
        kind = as_array(table["kind"])
        if _joined(kind) != b"append" * len(kind):
            table = table.filter(pc.equal(kind, "append"))
        columns = dict(zip(table.column_names, map(as_array, table.columns), strict=True))
        names = [columns[name] for name in NAME_COLUMNS if name in columns]
        begins = _differs(table.num_rows, *names)
        self._firsts = _begin_rows(begins)
        self._names = _names([column.take(pa.array(self._firsts[:-1], pa.int64())) for column in names])
        self._starts, self._ends = _integers(columns["offset"]), _integers(columns["next_offset"])
        self._data, self._bounds = _joined(columns["payload"]), _bounds(columns["payload"])
        self._record = columns["record"]
        self._append_flags = b""
        if self._record.null_count < len(self._record):
            self._position, self._index = columns["position"], columns["index"]
            self._is_frame = columns["event"].is_valid()  # set for the first message of an append in a batch
            is_new = pc.or_(_differs(table.num_rows, self._position, self._index), self._is_frame)
            self._append_flags = _flags(pc.or_(is_new, begins))

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return len(self._data) + 48 * len(self._ends) + 256 * len(self._firsts) + 1024

    def find(self, *name: str) -> StreamSlice | None:
        """The messages of a stream; ValueError if there are gaps between them."""
        names, firsts = self._names, self._firsts
        number = bisect_left(names, name)
        if number == len(names) or names[number] != name:
            return None
        return self._slice(firsts[number], firsts[number + 1], name[1])

    def single(self, stream: str) -> StreamSlice | None:
        """The messages of the only stream, which has this name."""
        return self._slice(0, len(self._ends), stream) if self._ends else None

    def _slice(self, first: int, last: int, stream: str) -> StreamSlice:
        starts, ends, data_start = self._starts[first:last], self._ends[first:last], self._bounds[first]
        size = self._bounds[last] - data_start
        if starts[1:] != ends[:-1] or size != ends[-1] - starts[0]:
            raise ValueError(f"messages of {stream} are missing between {starts[0]} and {ends[-1]}")
        record = self._record[first].as_py()
        if record is None:  # only JSON appends have several messages
            return StreamSlice(starts[0], ends, self._data, data_start)
        flags = self._append_flags[first + 1 : last] + _SET
        return StreamSlice(
            starts[0],
            ends,
            self._data,
            data_start,
            append_ends=ends if _UNSET not in flags else array("q", compress(ends, flags)),
            first_record=record,
            first_command=_NO_COMMAND if self._is_frame[first].as_py() else self._command(first),
            last_command=self._command(last - 1),
        )

    def _command(self, row: int) -> tuple[int, int]:
        return self._position[row].as_py(), self._index[row].as_py()


def rows_in_order(table: pa.Table, bucket: str, after: int, until: int) -> pa.Table:
    """The rows of a bucket with positions after one and up to another, in the order of the log.

    The table is one or more row groups of a segment, in the order of the file.
    """
    position = table["position"]
    wanted = pc.and_(pc.greater(position, after), pc.less_equal(position, until))
    rows = table.filter(pc.and_(pc.equal(table["bucket"], bucket), wanted))
    keys = {name: rows[name] for name in ("position", "index", "stream", "incarnation")}
    keys["kind"] = pc.index_in(rows["kind"], pa.array(_KINDS))
    keys["row"] = pa.arange(0, rows.num_rows)
    return rows.take(pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]))


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy if it already is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _integers(values: pa.Array) -> "array[int]":
    numbers = array("q")
    if len(values):
        numbers.frombytes(
            memoryview(values.buffers()[1])[8 * values.offset : 8 * (values.offset + len(values))]
        )
    return numbers


def _joined(values: pa.Array) -> bytes:
    """The bytes of all values, joined; nulls are skipped."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return b""
    bounds = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[bounds[values.offset] : bounds[values.offset + len(values)]])


def _names(columns: list[pa.Array]) -> Sequence[tuple[str, ...]]:
    columns = [column.fill_null("") for column in columns]
    if columns and len(columns[0]) > NAMES_LISTED:
        return _ManyNames(columns)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _bounds(values: pa.Array) -> "array[int]":
    """Where each value begins among the joined bytes, and where the last one ends."""
    bounds = array("i")
    _, offsets, _ = values.buffers()
    bounds.frombytes(memoryview(offsets).cast("B")[4 * values.offset : 4 * (values.offset + len(values) + 1)])
    first = bounds[0]
    return array("i", [bound - first for bound in bounds]) if first else bounds


def _differs(count: int, *columns: pa.Array) -> pa.BooleanArray:
    """For each row, whether any of the columns differs from the row before; true for the first row."""
    if not count:
        return pa.array([], pa.bool_())
    last = count - 1
    differs = pa.repeat(False, last)
    for column in columns:
        differs = pc.or_(differs, pc.not_equal(column.slice(1), column.slice(0, last)))
    return pa.concat_arrays([pa.array([True]), differs])


def _begin_rows(begins: pa.BooleanArray) -> "array[int]":
    """The numbers of the rows at which something begins, followed by the total number of rows."""
    rows = _integers(pc.indices_nonzero(begins))
    rows.append(len(begins))
    return rows


def _flags(values: pa.BooleanArray) -> bytes:
    """A byte of 0 or 1 for each value."""
    numbers = values.cast(pa.uint8())
    return memoryview(numbers.buffers()[1])[numbers.offset : numbers.offset + len(numbers)].tobytes()
