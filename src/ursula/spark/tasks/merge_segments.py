"""Merges segments of any size into one, for the job `compact`, with only a few row groups in memory.

Each segment is sorted, so rows not yet read come after the last row read from the same segment. Take the
smallest of those last rows: all rows in memory up to it can be written.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ...cold.objects.keys import segment_key
from ...cold.segment.footer import decode_row_group
from ...cold.segment.schema import SEGMENT_SCHEMA, key_at
from ...cold.segment.writer import SegmentWriter
from ..executor_store import ExecutorStore, OpenSegment

SortKey = tuple[str, str, str, int, int, int]
"""The sort order of the rows of a segment: key, then position and index."""


class MergedSegment(NamedTuple):
    """A new segment, which can replace those that it was merged from."""

    path: str
    rows: int
    size: int


def merge_segments(
    store: ExecutorStore, group: int, first: int, last: int, paths: Sequence[str]
) -> MergedSegment:
    """Write one segment with all rows of neighbouring segments, which cover the positions (first, last]."""
    key = segment_key(group, first, last)
    with tempfile.TemporaryDirectory(prefix="ursula-merge-") as folder:
        writer = SegmentWriter(Path(folder) / "merged.parquet", group, first, last)
        try:
            for rows in merged_rows([store.segment(path) for path in paths]):
                writer.write(rows)
            written = writer.finish()
            store.put_file(writer.path, key)
        finally:
            writer.discard()
    return MergedSegment(key, written.row_count, written.size)


def merged_rows(segments: Sequence[OpenSegment]) -> Iterator[pa.Table]:
    """All rows, in tables. The rows of a table come after all rows of the table before it."""
    inputs = [_Input(segment) for segment in segments]
    while inputs := [one for one in inputs if one.fill()]:
        # If no input has more row groups, all rows in memory can be written.
        limits = [one.last for one in inputs if one.has_more]
        limit = min(limits) if limits else max(one.last for one in inputs)
        taken = [one.take(limit) for one in inputs]
        yield pa.concat_tables([rows for rows in taken if rows.num_rows])


class _Input:
    """One of the segments: the rows that are in memory, and the row groups that are not."""

    def __init__(self, segment: OpenSegment) -> None:
        self._segment = segment
        self._row_groups = iter(segment.footer.row_groups)
        self._left = len(segment.footer.row_groups)
        self._rows = SEGMENT_SCHEMA.empty_table()

    @property
    def has_more(self) -> bool:
        """Whether there are row groups that have not been read."""
        return self._left > 0

    @property
    def last(self) -> SortKey:
        """The key of the last row in memory."""
        return self._sort_key(self._rows.num_rows - 1)

    def fill(self) -> bool:
        """Read a row group if no rows are in memory; returns whether there are rows then."""
        while not self._rows.num_rows and self._left:
            row_group = next(self._row_groups)
            self._left -= 1
            data = self._segment.file.read_at(row_group.end - row_group.start, row_group.start)
            self._rows = decode_row_group(self._segment.footer, row_group, data)
        if not self._rows.num_rows:
            self._segment.file.close()
        return bool(self._rows.num_rows)

    def take(self, limit: SortKey) -> pa.Table:
        """Remove and return the rows in memory up to a key."""
        count = bisect_right(range(self._rows.num_rows), limit, key=self._sort_key)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def _sort_key(self, row: int) -> SortKey:
        return *key_at(self._rows, row), self._rows["position"][row].as_py(), self._rows["index"][row].as_py()
