"""The feed as an Arrow IPC stream, with exactly the columns of a segment."""

import pyarrow as pa

from ...cold.segment.schema import SEGMENT_SCHEMA
from ...model.outcomes import FeedEntry, FeedPage, FeedRow

ROWS_PER_BATCH = 4096


def encode_arrow(page: FeedPage, group: int, bucket: str) -> bytes:
    """The rows of a page. This is slow: call it in a thread."""
    rows = [(entry, row) for entry in page.entries for row in entry.rows]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SEGMENT_SCHEMA) as writer:
        for first in range(0, len(rows), ROWS_PER_BATCH):
            values = [_row(group, bucket, entry, row) for entry, row in rows[first : first + ROWS_PER_BATCH]]
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*values, strict=True), SEGMENT_SCHEMA, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SEGMENT_SCHEMA))
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _row(group: int, bucket: str, entry: FeedEntry, row: FeedRow) -> tuple[object, ...]:
    producer = row.producer
    return (
        group,
        bucket,
        row.stream,
        row.incarnation,
        row.kind,
        row.offset,
        row.next_offset,
        row.record,
        entry.position,
        row.index,
        entry.at,
        row.content_type,
        None if producer is None else producer.id,
        None if producer is None else producer.epoch,
        None if producer is None else producer.seq,
        row.payload,
        None if row.event is None else row.event.decode(),
    )
