"""The footer of a segment, and the row groups that it names. `schema.py` describes the format.

For the server and for Spark executors: the standard library and pyarrow only. Blocking, so for threads;
nearly all of it runs without the GIL.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...crc import crc32
from .schema import FORMAT, Key

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8


class RowGroup(NamedTuple):
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


class Footer:
    """The footer of a segment: enough to fetch only the row group that answers a read."""

    def __init__(self, key: str, metadata: Any, row_groups: list[RowGroup]) -> None:
        self.key = key
        self.metadata = metadata
        self.row_groups = row_groups
        self.memory_bytes = 8 * metadata.serialized_size + 1024 * len(row_groups)
        self._appending = [row_group for row_group in row_groups if row_group.first_append is not None]
        self._idle: list[tuple[_RowGroupFile, pq.ParquetFile]] = []

    @classmethod
    def parse(cls, key: str, tail: bytes | memoryview, crc: int | None) -> "Footer":
        """The footer at the end of these bytes; ValueError if it is damaged or not a segment's."""
        try:
            size = cls.size_in(tail)
            if tail[-4:] != _MAGIC or len(tail) < size:
                raise ValueError("this is not the end of a Parquet file")
            footer = memoryview(tail)[len(tail) - size :]
            if crc is not None and crc32(footer) != crc:
                raise ValueError("the footer's checksum does not match")
            metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
            return cls(key, metadata, _row_groups(metadata))
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{key}: {error}") from error

    @staticmethod
    def size_in(tail: "bytes | memoryview[int]") -> int:
        """How many bytes the footer takes at the end of a file that ends with these bytes."""
        return int.from_bytes(tail[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES

    @property
    def group(self) -> int:
        """The group whose rows these are."""
        return int(self.metadata.metadata[b"ursula.group"])

    @property
    def positions(self) -> tuple[int, int]:
        """The rows are those of the positions after the first and up to the last of these."""
        texts = self.metadata.metadata
        return int(texts[b"ursula.first"]), int(texts[b"ursula.last"])

    def find(self, bucket: str, stream: str, incarnation: str, offset: int) -> RowGroup | None:
        """The row group with the byte at the offset, if there is one."""
        key = (bucket, stream, incarnation, offset)
        count = bisect_right(self._appending, key, key=_first_append)
        if count == 0:
            return None
        row_group = self._appending[count - 1]
        return row_group if row_group.last[:3] >= key[:3] else None

    def find_record(self, bucket: str, stream: str, incarnation: str, record: int) -> RowGroup | None:
        """The row group with the stream's message with this ordinal, if there is one."""
        name = (bucket, stream, incarnation)
        for row_group in reversed(self._between(name)):
            if row_group.first_append is None or row_group.first_append[:3] > name:
                continue  # all it has of the stream are events, at the end of its rows
            if row_group.first_append[:3] < name or row_group.first_record <= record:
                return row_group
        return None

    def following(self, row_group: RowGroup, bucket: str, stream: str, incarnation: str) -> RowGroup | None:
        """The next row group, if the stream continues in it."""
        number = row_group.number + 1
        if number < len(self.row_groups) and self.row_groups[number].first[:3] == (
            bucket,
            stream,
            incarnation,
        ):
            return self.row_groups[number]
        return None

    def of_bucket(self, bucket: str) -> list[RowGroup]:
        """The row groups with rows of a bucket."""
        return self._between((bucket,))

    def read_row_group(
        self, row_group: RowGroup, data: bytes | memoryview, columns: Sequence[str] | None
    ) -> pa.Table:
        """Decode the bytes of a row group without checking them. Several threads may call it at once."""
        try:
            source, file = self._idle.pop()
        except IndexError:
            source = _RowGroupFile(self.row_groups[-1].end)
            file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=self.metadata, pre_buffer=False)
        source.set(data, row_group.start)
        try:
            return file.read_row_group(row_group.number, columns=columns, use_threads=False)
        finally:
            source.set(b"", 0)
            self._idle.append((source, file))

    def _between(self, name: tuple[str | int, ...]) -> list[RowGroup]:
        """The row groups with keys that begin with this name."""
        size = len(name)
        first = bisect_left(self.row_groups, name, key=lambda row_group: row_group.last[:size])
        end = bisect_right(self.row_groups, name, first, key=lambda row_group: row_group.first[:size])
        return self.row_groups[first:end]


def decode_row_group(
    footer: Footer, row_group: RowGroup, data: bytes | memoryview, columns: Sequence[str] | None = None
) -> pa.Table:
    """Decode a row group from its bytes; ValueError if anything is missing or damaged."""
    try:
        if len(data) != row_group.end - row_group.start:
            raise ValueError(f"{len(data)} bytes instead of {row_group.end - row_group.start}")
        if crc32(data) != row_group.checksum:
            raise ValueError("the checksum does not match")
        table = footer.read_row_group(row_group, data, columns)
        if table.num_rows != row_group.row_count:
            raise ValueError(f"{table.num_rows} rows instead of {row_group.row_count}")
        return table.replace_schema_metadata(None)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise ValueError(f"{footer.key}: row group {row_group.number}: {error}") from error


class _RowGroupFile:
    """A file that has only the bytes of one row group. Reads outside them return nothing."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size = size
        self.set(b"", 0)

    def set(self, data: bytes | memoryview, start: int) -> None:
        """Set the bytes, and where in the file they start."""
        self._buffer = pa.py_buffer(data)
        self._start = start
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset if whence == 0 else self._size + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> pa.Buffer:
        begin = self._at - self._start
        if begin < 0 or begin > self._buffer.size:
            return pa.py_buffer(b"")
        data = self._buffer.slice(begin, min(size, self._buffer.size - begin))
        self._at += data.size
        return data

    def close(self) -> None:
        pass


def _row_groups(metadata: Any) -> list[RowGroup]:
    texts = metadata.metadata or {}
    version = texts.get(b"ursula.format")
    if version != str(FORMAT).encode():
        raise ValueError(f"the format is {version!r}, not {FORMAT}")
    index = json.loads(texts[b"ursula.index"])
    if len(index) != metadata.num_row_groups:
        raise ValueError(f"the index has {len(index)} row groups, not {metadata.num_row_groups}")
    return [
        RowGroup._make((number, tuple(first), tuple(last), append and tuple(append), *numbers))
        for number, (first, last, append, *numbers) in enumerate(index)
    ]


def _first_append(row_group: RowGroup) -> Key:
    if row_group.first_append is None:
        raise ValueError("the row group has no appends")
    return row_group.first_append
