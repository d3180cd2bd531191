"""Spools: a segment's rows of one bucket, sorted back into the order of the log, in a local file.

The rows of a segment are in the order of streams; a feed needs them by position. So a segment is read once
and sorted into a file, which serves all requests for the feed, however small they are. The file of a spool is
removed when the spool is garbage-collected.
"""

import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from .objects.temp_files import as_store_failure
from .objects.ulid import new_ulid
from .segment.schema import SEGMENT_SCHEMA
from .segment.stream_slice import rows_in_order

BATCH_BYTES = 256 * 1024
BATCH_ROWS = 1024
EVERYTHING = 2**62


class Spool:
    """Batches of whole log entries, in the order of the log. Blocking: for threads."""

    def __init__(self, path: Path, lasts: list[int]) -> None:
        self._path = path
        self._lasts = lasts
        self.size = path.stat().st_size if lasts else 0
        weakref.finalize(self, path.unlink, missing_ok=True)

    @classmethod
    def write(cls, folder: Path, tables: Sequence[pa.Table], bucket: str) -> "Spool":
        """Sort the rows of a bucket into a file; `tables` are row groups in the order of their segment.

        Raises StoreUnavailable if the file cannot be written.
        """
        rows = rows_in_order(pa.concat_tables(tables), bucket, -1, EVERYTHING).combine_chunks()
        path = folder / f"spool-{new_ulid()}"
        with as_store_failure():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                return cls(path, _write(path, rows))
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def batches_after(self, position: int) -> Iterator[pa.RecordBatch]:
        """The batches with rows after a position; the first may begin with earlier rows."""
        if not self._lasts or self._lasts[-1] <= position:
            return
        with pa.memory_map(str(self._path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(bisect_right(self._lasts, position), len(self._lasts)):
                yield reader.get_batch(number)


def _write(path: Path, rows: pa.Table) -> list[int]:
    """Write rows that are in order; returns the last position of each batch."""
    lasts = []
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SEGMENT_SCHEMA) as writer:
        for first, last in _batches(rows):
            batch = rows.slice(first, last - first).combine_chunks().to_batches()[0]
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=SEGMENT_SCHEMA))
            lasts.append(rows["position"][last - 1].as_py())
    return lasts


def _batches(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Where each batch begins and ends: not too large, and never inside a log entry."""
    if not rows.num_rows:
        return
    positions = rows["position"].combine_chunks()
    changes = pc.indices_nonzero(pc.not_equal(positions.slice(1), positions.slice(0, len(positions) - 1)))
    ends = [*(pc.add(changes.cast(pa.int64()), 1).to_pylist()), rows.num_rows]
    sizes = pc.fill_null(pc.binary_length(rows["payload"]), 0).cast(pa.int64())
    sums = pc.cumulative_sum(sizes).to_pylist()
    first = before = 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        size = sums[end - 1] - before
        if following is None or size >= BATCH_BYTES or end - first >= BATCH_ROWS:
            yield first, end
            first, before = end, sums[end - 1]
