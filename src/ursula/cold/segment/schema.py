"""The columns of a segment: one row for every message and event of a bucket.

Field ids are fixed and never used again, every column may be null, and types are only ever widened.
"""

import pyarrow as pa

_COLUMNS = (
    ("group", pa.int32()),
    ("bucket", pa.string()),
    ("stream", pa.string()),
    ("incarnation", pa.string()),
    ("kind", pa.string()),
    ("offset", pa.int64()),
    ("next_offset", pa.int64()),
    ("record", pa.int64()),
    ("position", pa.int64()),
    ("index", pa.int32()),
    ("appended_at", pa.timestamp("us", tz="UTC")),
    ("content_type", pa.string()),
    ("producer_id", pa.string()),
    ("producer_epoch", pa.int64()),
    ("producer_seq", pa.int64()),
    ("payload", pa.binary()),
    ("event", pa.string()),
)

SEGMENT_SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate(_COLUMNS, start=1)
    ]
)
