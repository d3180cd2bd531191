"""Counts the contents of segments by bucket, day and stream, without their messages, for the job `usage`."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..executor_store import ExecutorStore
from ..options import S3Options

_COLUMNS = ["bucket", "stream", "incarnation", "kind", "offset", "next_offset", "appended_at"]

USAGE_SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("day", pa.date32()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


def count_segments(root: str, s3: S3Options, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for each stream and day of each segment. The first column of the batches names the segments."""
    store = ExecutorStore(root, s3)
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from _count(store, path).to_batches()


def _count(store: ExecutorStore, path: str) -> pa.Table:
    segment = store.segment(path)
    with segment.file:
        file = pq.ParquetFile(
            segment.file,
            metadata=segment.footer.metadata,
            pre_buffer=segment.is_remote,
            page_checksum_verification=True,
        )
        table = file.read(_COLUMNS, use_threads=False)
    table = table.filter(pc.equal(table["kind"], "append"))
    counted = pa.table(
        {
            "bucket": table["bucket"],
            "stream": table["stream"],
            "incarnation": table["incarnation"],
            "day": pc.cast(table["appended_at"], pa.date32()),
            "bytes": pc.subtract(table["next_offset"], table["offset"]),
        }
    )
    found = counted.group_by(["bucket", "stream", "incarnation", "day"]).aggregate(
        [("bytes", "count"), ("bytes", "sum")]
    )
    return found.rename_columns(USAGE_SCHEMA.names).cast(USAGE_SCHEMA)
