"""The format of a segment: a Parquet file of many streams from which a range of one stream is read cheaply.

There is one row for every message and event of a bucket. Field ids are fixed and never reused, every column
may be null, and types are only ever widened.

Rows are sorted by (bucket, stream, incarnation, offset, position, index), and rows that are equal in all of
these keep the order of the log; nulls come first and count as "" or -1. A row group has 1 MiB of payloads and
events or 65,536 rows, whichever is less, but at least one row. Its column chunks are contiguous in the file,
so a row group is one range of bytes.

The key-value metadata of the footer has the version `ursula.format`, the decimal numbers `ursula.group`,
`ursula.first` and `ursula.last` (the rows are those of the positions after the first and up to the last), and
`ursula.index`, a JSON list with a list for every row group:

    [first key, last key, key of the first append or null, record of the first append or -1,
     record of the last append or -1, start, end, checksum, number of rows]

A key is [bucket, stream, incarnation, offset], start and end are byte positions in the file, and the
checksum is the CRC-32 of the bytes between them: Parquet's own checksums leave out the page headers.

For the server and for Spark executors: the standard library and pyarrow only.
"""

import pyarrow as pa

FORMAT = 1
ROW_GROUP_BYTES = 1 << 20
ROW_GROUP_ROWS = 65_536

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

NAME_COLUMNS = ("bucket", "stream", "incarnation")
SORT_COLUMNS = (*NAME_COLUMNS, "offset", "position", "index")

Key = tuple[str, str, str, int]
"""Bucket, stream, incarnation, offset."""


def key_at(table: pa.Table, row: int) -> Key:
    """The key of a row."""
    bucket, stream, incarnation, offset = (table[name][row].as_py() for name in SORT_COLUMNS[:4])
    return bucket or "", stream or "", incarnation or "", -1 if offset is None else offset
