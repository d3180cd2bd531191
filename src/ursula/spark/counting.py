"""How much lies in a segment, by bucket, day and stream: for an executor, without reading the messages."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .options import S3Options
from .store import StoreFiles

_COLUMNS = ["bucket", "stream", "incarnation", "kind", "offset", "next_offset", "appended_at"]

COUNTED = pa.schema(
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
    """A row for each stream and day of each segment that these batches name in their first column."""
    store = StoreFiles(root, s3)
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield from _count(store, path).to_batches()


def _count(store: StoreFiles, path: str) -> pa.Table:
    segment = store.segment(path)
    with segment.file:
        file = pq.ParquetFile(
            segment.file,
            metadata=segment.footer.metadata,
            pre_buffer=segment.is_far,
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
    return found.rename_columns(COUNTED.names).cast(COUNTED)
