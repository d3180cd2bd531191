"""A segment: rows of many streams as a Parquet file from which one stretch of one stream is read cheaply.

Rows are sorted by (bucket, stream, incarnation, offset, position, index), ties as they came; nulls come
first and count as "" or -1. Row groups hold 1 MiB of payload and events or 65,536 rows, whatever is less,
but at least one row. Their column chunks lie one behind the other, so one range of bytes is one row group.

The footer's key-value metadata has, beside the version `ursula.format` and the decimal numbers
`ursula.group`, `ursula.first` and `ursula.last` (the positions after the first and up to the last), a JSON
list `ursula.index` with a list for every row group:

    [first key, last key, key of the first append or null, record of the first append or -1,
     record of the last append or -1, start, end, checksum, number of rows]

A key is [bucket, stream, incarnation, offset], start and end are byte positions in the file, and the
checksum is the CRC-32 of the bytes between them: Parquet's own leave out the page headers.

For the server and for Spark executors: the standard library and pyarrow only. Blocking, nearly all of it
without the GIL: for threads.
"""

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...crc import crc32
from .schema import SEGMENT_SCHEMA

FORMAT = 1
ROW_GROUP_BYTES = 1 << 20
ROW_GROUP_ROWS = 65_536
ZSTD_LEVEL = 3

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
_NAMES = ("bucket", "stream", "incarnation")
_SORT_COLUMNS = (*_NAMES, "offset", "position", "index")
_DICTIONARY_COLUMNS = [*_NAMES, "kind", "content_type", "producer_id", "group", "producer_epoch"]
_DELTA_COLUMNS = ("offset", "next_offset", "position", "index", "appended_at")
"""Not those of which a row group may have only nulls: several readers fail at such a page."""

_BUFFER_BYTES = 4 << 20
_SAMPLES = 16
_SAMPLE_BYTES = 8 << 10
_WORTH_IT = 0.95

Key = tuple[str, str, str, int]
"""Bucket, stream, incarnation, offset."""

Pause = Callable[[], None]
"""Called between two steps by whoever writes a segment: others may go on meanwhile."""


def _go_on() -> None:
    """Go on without a pause."""


class EncodedSegment(NamedTuple):
    """The bytes of a segment, and what those who name it should know of it."""

    data: pa.Buffer
    row_count: int
    payload_bytes: int
    footer_bytes: int
    footer_crc: int
    digest: str


class Span(NamedTuple):
    """A row group: which rows, and which bytes of the file."""

    number: int
    first: Key
    last: Key
    first_append: Key | None
    first_record: int
    last_record: int
    start: int
    end: int
    checksum: int
    row_count: int


class WrittenSegment(NamedTuple):
    """A segment that was written to a file, and what those who name it should know of it."""

    path: Path
    size: int
    row_count: int
    payload_bytes: int
    footer_bytes: int
    footer_crc: int
    digest: str


def encode_segment(
    table: pa.Table,
    group: int,
    first: int,
    last: int,
    *,
    row_group_bytes: int = ROW_GROUP_BYTES,
    row_group_rows: int = ROW_GROUP_ROWS,
    pause: Pause = _go_on,
) -> EncodedSegment:
    """The segment of the positions (first, last] of a group, from rows in the order of the log."""
    output = pa.BufferOutputStream()
    encoder = _Encoder(output.write, row_group_bytes, row_group_rows)
    encoder.add(table, pause)
    facts = encoder.end(group, first, last)
    return EncodedSegment(output.getvalue(), *facts[1:])


class SegmentWriter:
    """A segment that is written to a file, some of its rows at a time. `path` must be free."""

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
        self._facts = group, first, last
        self._file = path.open("xb", buffering=0)
        self._lock = Lock()  # nobody may close a file into which another thread still writes
        self._encoder = _Encoder(partial(_write_all, self._file), row_group_bytes, row_group_rows)

    def write(self, table: pa.Table, pause: Pause = _go_on) -> None:
        """Add rows in the order of the log, all of which belong behind those that were written before."""
        with self._lock:
            self._encoder.add(table, pause)

    def finish(self) -> WrittenSegment:
        """Write the footer: the file is whole, though it may not be on the disk yet."""
        with self._lock:
            facts = self._encoder.end(*self._facts)
            self._file.close()
        return WrittenSegment(self.path, *facts)

    def discard(self) -> None:
        """End writing, if it has not ended, and leave no file behind under this name."""
        with self._lock:
            self._file.close()
        self.path.unlink(missing_ok=True)


class _Encoder:
    """Sorts rows, cuts them into row groups and hands over their bytes; the last row group waits for more."""

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
        """Rows that belong behind all others, in the order of the log."""
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
        """Some of the rows that waited, all of which are in the first row group, and of new ones in order."""
        before = self._waiting.num_rows
        taken = table.take(order.slice(max(0, begin - before), end - max(begin, before)))
        if begin < before:
            taken = pa.concat_tables([self._waiting, taken])
        return taken.combine_chunks()

    def end(self, group: int, first: int, last: int) -> tuple[int, int, int, int, int, str]:
        """Write the rest; returns size, rows, bytes of payload, size and checksum of the footer, digest."""
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
        digest = f"sha256:{self._sink.hash.hexdigest()}"
        return size, self._row_count, self._payload_bytes, size - begin, checksum, digest

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
    """Whether messages get smaller, told from some of their bytes: encrypted or compressed ones do not."""
    some = []
    for chunk in payloads.chunks:
        data = chunk.buffers()[2]
        if data is not None:
            step = max(_SAMPLE_BYTES, data.size // _SAMPLES)
            some += [memoryview(data)[at : at + _SAMPLE_BYTES] for at in range(0, data.size, step)]
    sample = b"".join(some)
    return len(pa.compress(sample, "zstd", asbytes=True)) < _WORTH_IT * len(sample)


class Footer:
    """What a segment says of itself: enough to fetch just the row group that answers a read."""

    def __init__(self, key: str, metadata: Any, spans: list[Span]) -> None:
        self.key = key
        self.metadata = metadata
        self.spans = spans
        self.memory_bytes = 8 * metadata.serialized_size + 1024 * len(spans)
        self._appending = [span for span in spans if span.first_append is not None]
        self._idle: list[tuple[_Part, pq.ParquetFile]] = []

    @classmethod
    def parse(cls, key: str, tail: bytes | memoryview, crc: int | None) -> "Footer":
        """The footer at the end of these bytes; ValueError if it is damaged or not one of ours."""
        try:
            size = _footer_size(tail)
            footer = memoryview(tail)[len(tail) - size :]
            if crc is not None and crc32(footer) != crc:
                raise ValueError("the footer's checksum does not match")
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
            return cls(key, metadata, _spans(metadata))
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{key}: {error}") from error

    @property
    def group(self) -> int:
        """Whose rows they are."""
        return int(self.metadata.metadata[b"ursula.group"])

    @property
    def positions(self) -> tuple[int, int]:
        """The rows are those after the first and up to the last of these."""
        texts = self.metadata.metadata
        return int(texts[b"ursula.first"]), int(texts[b"ursula.last"])

    def find(self, bucket: str, stream: str, incarnation: str, offset: int) -> Span | None:
        """The row group that has the byte at the offset, if any has."""
        key = (bucket, stream, incarnation, offset)
        count = bisect_right(self._appending, key, key=_first_append)
        if count == 0:
            return None
        span = self._appending[count - 1]
        return span if span.last[:3] >= key[:3] else None

    def find_record(self, bucket: str, stream: str, incarnation: str, record: int) -> Span | None:
        """The row group that has the stream's message with this ordinal, if any has."""
        name = (bucket, stream, incarnation)
        for span in reversed(self._between(name)):
            if span.first_append is None or span.first_append[:3] > name:
                continue  # only events of the stream, at the end of its rows
            if span.first_append[:3] < name or span.first_record <= record:
                return span
        return None

    def following(self, span: Span, bucket: str, stream: str, incarnation: str) -> Span | None:
        """The next row group, if the stream goes on in it."""
        number = span.number + 1
        if number < len(self.spans) and self.spans[number].first[:3] == (bucket, stream, incarnation):
            return self.spans[number]
        return None

    def of_bucket(self, bucket: str) -> list[Span]:
        """The row groups with rows of a bucket."""
        return self._between((bucket,))

    def read_row_group(self, span: Span, data: bytes | memoryview, columns: Sequence[str] | None) -> pa.Table:
        """The rows in the bytes of a row group, unchecked. For several threads at once."""
        try:
            part, file = self._idle.pop()
        except IndexError:
            part = _Part(self.spans[-1].end)
            file = pq.ParquetFile(pa.PythonFile(part, mode="r"), metadata=self.metadata, pre_buffer=False)
        part.begin(data, span.start)
        try:
            return file.read_row_group(span.number, columns=columns, use_threads=False)
        finally:
            part.begin(b"", 0)
            self._idle.append((part, file))

    def _between(self, name: tuple[str | int, ...]) -> list[Span]:
        """The row groups with keys that begin so."""
        size = len(name)
        first = bisect_left(self.spans, name, key=lambda span: span.last[:size])
        return self.spans[first : bisect_right(self.spans, name, first, key=lambda span: span.first[:size])]


def decode_row_group(
    footer: Footer, span: Span, data: bytes | memoryview, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a row group from its bytes; ValueError if anything is missing or damaged."""
    try:
        if len(data) != span.end - span.start:
            raise ValueError(f"{len(data)} bytes instead of {span.end - span.start}")
        if crc32(data) != span.checksum:
            raise ValueError("the checksum does not match")
        table = footer.read_row_group(span, data, columns)
        if table.num_rows != span.row_count:
            raise ValueError(f"{table.num_rows} rows instead of {span.row_count}")
        return table.replace_schema_metadata(None)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise ValueError(f"{footer.key}: row group {span.number}: {error}") from error


class _Sink:
    """Hands on what is written, and sums it up on the way."""

    closed = False

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self.hash = hashlib.sha256()
        self._write = write
        self._size = 0
        self._checksum = 0

    def mark(self) -> tuple[int, int]:
        """Where the file ends by now, and the checksum of what came since the last mark."""
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


class _Part:
    """A file of which only some bytes are there. Others are not asked for, or come out empty."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size = size
        self.begin(b"", 0)

    def begin(self, data: bytes | memoryview, start: int) -> None:
        """These are the bytes from a place on."""
        self._buffer = pa.py_buffer(data)
        self._start = start
        self._place = 0

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place if whence == 0 else self._size + place
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> pa.Buffer:
        begin = self._place - self._start
        if begin < 0 or begin > self._buffer.size:
            return pa.py_buffer(b"")
        part = self._buffer.slice(begin, min(size, self._buffer.size - begin))
        self._place += part.size
        return part

    def close(self) -> None:
        pass


def _write_all(file: FileIO, data: bytes) -> None:
    """Write to a file; not, if it was closed because nobody wants it."""
    view = memoryview(data)
    while view and not file.closed:
        view = view[file.write(view) :]


def _order(table: pa.Table, pause: Pause) -> pa.Array:
    """The rows as they are sorted in a segment, by number."""
    keys = {name: _ranks(table[name]) for name in _NAMES}
    keys |= {name: pc.fill_null(table[name], -1) for name in _SORT_COLUMNS if name not in _NAMES}
    keys["row"] = pa.arange(0, table.num_rows)
    pause()
    return pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])


def _ranks(names: pa.ChunkedArray) -> pa.Array:
    """Numbers in the order of the names: there are few, and numbers are sorted many times as fast."""
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
    """What the index tells of a row group."""
    keys = [key_at(rows, 0), key_at(rows, rows.num_rows - 1)]
    appends = pc.indices_nonzero(pc.equal(rows["kind"], "append"))
    if not len(appends):
        return [*keys, None, -1, -1]
    first, last = appends[0].as_py(), appends[-1].as_py()
    records = (rows["record"][row].as_py() for row in (first, last))
    return [*keys, key_at(rows, first), *(-1 if record is None else record for record in records)]


def key_at(table: pa.Table, row: int) -> Key:
    """The key of a row."""
    bucket, stream, incarnation, offset = (table[name][row].as_py() for name in _SORT_COLUMNS[:4])
    return bucket or "", stream or "", incarnation or "", -1 if offset is None else offset


def _footer_size(tail: "bytes | memoryview[int]") -> int:
    size = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES
    if tail[-4:] != _MAGIC or len(tail) < size:
        raise ValueError("this is not the end of a Parquet file")
    return size


def _spans(metadata: Any) -> list[Span]:
    texts = metadata.metadata or {}
    version = texts.get(b"ursula.format")
    if version != str(FORMAT).encode():
        raise ValueError(f"the format is {version!r}, not {FORMAT}")
    index = json.loads(texts[b"ursula.index"])
    if len(index) != metadata.num_row_groups:
        raise ValueError(f"the index tells of {len(index)} row groups, not {metadata.num_row_groups}")
    return [
        Span._make((number, tuple(first), tuple(last), append and tuple(append), *numbers))
        for number, (first, last, append, *numbers) in enumerate(index)
    ]


def _first_append(span: Span) -> Key:
    if span.first_append is None:
        raise ValueError("a row group without appends")
    return span.first_append
