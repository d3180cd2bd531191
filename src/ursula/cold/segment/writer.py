"""Writing segments: rows are sorted, split into row groups and encoded. `schema.py` describes the format.

For the server and for Spark executors: the standard library and pyarrow only. Blocking, so for threads;
nearly all of it runs without the GIL.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...crc import crc32
from .schema import (
    FORMAT,
    NAME_COLUMNS,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SEGMENT_SCHEMA,
    SORT_COLUMNS,
    key_at,
)

ZSTD_LEVEL = 3

_DICTIONARY_COLUMNS = [*NAME_COLUMNS, "kind", "content_type", "producer_id", "group", "producer_epoch"]
_DELTA_COLUMNS = ("offset", "next_offset", "position", "index", "appended_at")
"""Excludes columns that may be all null in a row group, since several readers fail on such a page."""

_BUFFER_BYTES = 4 << 20
_SAMPLES = 16
_SAMPLE_BYTES = 8 << 10
_WORTH_IT = 0.95

Pause = Callable[[], None]
"""Called between two steps of writing a segment, to let other threads run."""


def _no_pause() -> None:
    """Continue at once."""


class SegmentSummary(NamedTuple):
    """The facts about a segment that are needed to name it and to read it."""

    size: int
    row_count: int
    payload_bytes: int
    footer_bytes: int
    footer_crc: int
    digest: str


class EncodedSegment(NamedTuple):
    """A segment in memory."""

    data: pa.Buffer
    summary: SegmentSummary


def encode_segment(
    table: pa.Table,
    group: int,
    first: int,
    last: int,
    *,
    row_group_bytes: int = ROW_GROUP_BYTES,
    row_group_rows: int = ROW_GROUP_ROWS,
    pause: Pause = _no_pause,
) -> EncodedSegment:
    """Encode the segment of the positions (first, last] of a group, from rows in the order of the log."""
    output = pa.BufferOutputStream()
    encoder = _Encoder(output.write, row_group_bytes, row_group_rows)
    encoder.add(table, pause)
    summary = encoder.finish(group, first, last)
    return EncodedSegment(output.getvalue(), summary)


class SegmentWriter:
    """Writes a segment to a new file, some of its rows at a time. `path` must not exist."""

    def __init__(
        self,
        path: Path,
        group: int,
        first: int,
        last: int,
        *,
        row_group_bytes: int = ROW_GROUP_BYTES,
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> None:
        self.path = path
        self._range = group, first, last
        self._file = path.open("xb", buffering=0)
        self._lock = Lock()  # the file must not be closed while another thread writes to it
        self._encoder = _Encoder(partial(_write_all, self._file), row_group_bytes, row_group_rows)

    def write(self, table: pa.Table, pause: Pause = _no_pause) -> None:
        """Add rows in the order of the log; all of them sort after the rows written before."""
        with self._lock:
            self._encoder.add(table, pause)

    def finish(self) -> SegmentSummary:
        """Write the footer: the file is complete, but not synced."""
        with self._lock:
            summary = self._encoder.finish(*self._range)
            self._file.close()
        return summary

    def discard(self) -> None:
        """Stop writing if it has not finished, and remove the file."""
        with self._lock:
            self._file.close()
        self.path.unlink(missing_ok=True)


class _Encoder:
    """Sorts rows, splits them into row groups and writes them; the last row group waits for more rows."""

    def __init__(self, write: Callable[[bytes], Any], bytes_max: int, rows_max: int) -> None:
        self._limits = bytes_max, rows_max
        self._sink = _Sink(write)
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
        self._writer: pq.ParquetWriter | None = None
        self._index: list[list[Any]] = []
        self._waiting = SEGMENT_SCHEMA.empty_table()
        self._row_count = 0
        self._payload_bytes = 0

    def add(self, table: pa.Table, pause: Pause) -> None:
        """Add rows in the order of the log; all of them sort after the rows added before."""
        if not table.num_rows:
            return
        table = table.select(SEGMENT_SCHEMA.names).cast(SEGMENT_SCHEMA).combine_chunks()
        pause()
        order = _order(table, pause)
        pause()
        before = self._waiting.num_rows
        first = key_at(table, order[0].as_py())
        if before and first < key_at(self._waiting, before - 1):
            raise ValueError(f"rows of {first} come after those of {key_at(self._waiting, before - 1)}")
        self._row_count += table.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(table["payload"])).as_py() or 0
        if self._writer is None:
            self._writer = self._begin(is_worth_compressing(table["payload"]))
        sizes = pa.concat_arrays([_sizes(self._waiting), _sizes(table).take(order)])
        *whole, (begin, end) = _row_groups(sizes, *self._limits)
        for bounds in whole:
            self._write(self._writer, self._rows(table, order, *bounds))
            pause()
        self._waiting = self._rows(table, order, begin, end)

    def _rows(self, table: pa.Table, order: pa.Array, begin: int, end: int) -> pa.Table:
        """The rows of a row group: the waiting ones, which all go into the first row group, then new ones."""
        before = self._waiting.num_rows
        taken = table.take(order.slice(max(0, begin - before), end - max(begin, before)))
        if begin < before:
            taken = pa.concat_tables([self._waiting, taken])
        return taken.combine_chunks()

    def finish(self, group: int, first: int, last: int) -> SegmentSummary:
        """Write the remaining rows and the footer."""
        writer = self._writer or self._begin(True)
        if self._waiting.num_rows:
            self._write(writer, self._waiting)
        facts = {"format": FORMAT, "group": group, "first": first, "last": last}
        metadata = {f"ursula.{name}": str(number) for name, number in facts.items()}
        metadata["ursula.index"] = json.dumps(self._index, separators=(",", ":"), ensure_ascii=False)
        writer.add_key_value_metadata(metadata)
        begin, _ = self._sink.mark()
        writer.close()
        self._stream.flush()
        size, checksum = self._sink.mark()
        return SegmentSummary(
            size=size,
            row_count=self._row_count,
            payload_bytes=self._payload_bytes,
            footer_bytes=size - begin,
            footer_crc=checksum,
            digest=f"sha256:{self._sink.hash.hexdigest()}",
        )

    def _begin(self, compress_payload: bool) -> pq.ParquetWriter:
        codecs = dict.fromkeys(SEGMENT_SCHEMA.names, "zstd")
        if not compress_payload:
            codecs["payload"] = "none"
        writer = pq.ParquetWriter(
            self._stream,
            SEGMENT_SCHEMA,
            compression=codecs,
            compression_level={name: ZSTD_LEVEL for name, codec in codecs.items() if codec == "zstd"},
            use_dictionary=_DICTIONARY_COLUMNS,
            column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in SEGMENT_SCHEMA.names if name != "payload"],
            write_page_checksum=True,
            store_schema=False,
        )
        self._stream.flush()
        return writer

    def _write(self, writer: pq.ParquetWriter, rows: pa.Table) -> None:
        """Write a row group."""
        start, _ = self._sink.mark()
        writer.write_table(rows, row_group_size=rows.num_rows)
        self._stream.flush()
        self._index.append([*_bounds(rows), start, *self._sink.mark(), rows.num_rows])


def is_worth_compressing(payloads: pa.ChunkedArray) -> bool:
    """Whether compression makes messages smaller, judged by samples: it does not if they are encrypted."""
    some = []
    for chunk in payloads.chunks:
        data = chunk.buffers()[2]
        if data is not None:
            step = max(_SAMPLE_BYTES, data.size // _SAMPLES)
            some += [memoryview(data)[at : at + _SAMPLE_BYTES] for at in range(0, data.size, step)]
    sample = b"".join(some)
    return len(pa.compress(sample, "zstd", asbytes=True)) < _WORTH_IT * len(sample)


class _Sink:
    """Passes the written bytes on, and computes their size, checksum and digest on the way."""

    closed = False

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self.hash = hashlib.sha256()
        self._write = write
        self._size = 0
        self._checksum = 0

    def mark(self) -> tuple[int, int]:
        """The current size of the file, and the checksum of the bytes since the last mark."""
        checksum, self._checksum = self._checksum, 0
        return self._size, checksum

    def write(self, data: bytes) -> int:
        self._write(data)
        self.hash.update(data)
        self._checksum = crc32(data, self._checksum)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _write_all(file: FileIO, data: bytes) -> None:
    """Write to a file, unless it was closed because the segment was discarded."""
    view = memoryview(data)
    while view and not file.closed:
        view = view[file.write(view) :]


def _order(table: pa.Table, pause: Pause) -> pa.Array:
    """The row numbers in the order of a segment."""
    keys = {name: _ranks(table[name]) for name in NAME_COLUMNS}
    keys |= {name: pc.fill_null(table[name], -1) for name in SORT_COLUMNS if name not in NAME_COLUMNS}
    keys["row"] = pa.arange(0, table.num_rows)
    pause()
    return pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])


def _ranks(names: pa.ChunkedArray) -> pa.Array:
    """Numbers that sort as the names do: there are few names, and sorting numbers is many times faster."""
    encoded = pc.fill_null(names, "").combine_chunks().dictionary_encode()
    return pc.rank(encoded.dictionary, "ascending", tiebreaker="dense").take(encoded.indices)


def _sizes(table: pa.Table) -> pa.Array:
    """How many bytes of payload and event each row has."""
    sizes = [pc.fill_null(pc.binary_length(table[name]), 0).cast(pa.int64()) for name in ("payload", "event")]
    return pc.add(*sizes).combine_chunks()


def _row_groups(sizes: pa.Array, bytes_max: int, rows_max: int) -> Iterator[tuple[int, int]]:
    """Where each row group begins and ends."""
    sums = memoryview(pc.cumulative_sum(sizes).buffers()[1]).cast("q")
    begin = before = 0
    while begin < len(sizes):
        end = bisect_right(sums, before + bytes_max, begin, min(begin + rows_max, len(sizes)))
        end = max(end, begin + 1)
        yield begin, end
        begin, before = end, sums[end - 1]


def _bounds(rows: pa.Table) -> list[Any]:
    """The keys and records of a row group, as the index has them."""
    keys = [key_at(rows, 0), key_at(rows, rows.num_rows - 1)]
    appends = pc.indices_nonzero(pc.equal(rows["kind"], "append"))
    if not len(appends):
        return [*keys, None, -1, -1]
    first, last = appends[0].as_py(), appends[-1].as_py()
    records = (rows["record"][row].as_py() for row in (first, last))
    return [*keys, key_at(rows, first), *(-1 if record is None else record for record in records)]
