"""Several segments become one, a few row groups at a time: for an executor, whatever their sizes.

Each segment is sorted, so what is at or before the first of the last rows that are at hand comes before
everything that was not read yet.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ..cold.objects.keys import segment_key
from ..cold.segment.footer import decode_row_group
from ..cold.segment.schema import SEGMENT_SCHEMA, key_at
from ..cold.segment.writer import SegmentWriter
from .store import OpenSegment, StoreFiles

Place = tuple[str, str, str, int, int, int]
"""Where a row is in the order of a segment: by its key, then by position and index."""


class Joined(NamedTuple):
    """A segment that stands for others, once the server knows of it."""

    path: str
    rows: int
    size: int


def join(store: StoreFiles, group: int, first: int, last: int, paths: Sequence[str]) -> Joined:
    """Write one segment with all rows of these neighbours, of the positions after first up to last."""
    key = segment_key(group, first, last)
    with tempfile.TemporaryDirectory(prefix="ursula-join-") as folder:
        writer = SegmentWriter(Path(folder) / "joined.parquet", group, first, last)
        try:
            for rows in merged([store.segment(path) for path in paths]):
                writer.write(rows)
            written = writer.finish()
            store.put_file(writer.path, key)
        finally:
            writer.discard()
    return Joined(key, written.row_count, written.size)


def merged(segments: Sequence[OpenSegment]) -> Iterator[pa.Table]:
    """All rows in tables, those of each behind those of the one before."""
    inputs = [_Input(segment) for segment in segments]
    while inputs := [one for one in inputs if one.fill()]:
        # Where nothing more comes of any input, all that is at hand may go.
        limits = [one.last for one in inputs if one.has_more]
        limit = min(limits) if limits else max(one.last for one in inputs)
        taken = [one.take(limit) for one in inputs]
        yield pa.concat_tables([rows for rows in taken if rows.num_rows])


class _Input:
    """One of the segments: its next row group, and those to come."""

    def __init__(self, segment: OpenSegment) -> None:
        self._segment = segment
        self._spans = iter(segment.footer.row_groups)
        self._left = len(segment.footer.row_groups)
        self._rows = SEGMENT_SCHEMA.empty_table()

    @property
    def has_more(self) -> bool:
        """Whether there are row groups that were not read yet."""
        return self._left > 0

    @property
    def last(self) -> Place:
        """Where the last row at hand is."""
        return self._place(self._rows.num_rows - 1)

    def fill(self) -> bool:
        """Have rows at hand; whether there are any."""
        while not self._rows.num_rows and self._left:
            span = next(self._spans)
            self._left -= 1
            data = self._segment.file.read_at(span.end - span.start, span.start)
            self._rows = decode_row_group(self._segment.footer, span, data)
        if not self._rows.num_rows:
            self._segment.file.close()
        return bool(self._rows.num_rows)

    def take(self, limit: Place) -> pa.Table:
        """The rows at hand up to a place, which are gone from here then."""
        count = bisect_right(range(self._rows.num_rows), limit, key=self._place)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def _place(self, row: int) -> Place:
        return *key_at(self._rows, row), self._rows["position"][row].as_py(), self._rows["index"][row].as_py()
