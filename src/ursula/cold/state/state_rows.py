"""State objects: the state rows of a group in Parquet, all of them or only those that changed.

Columns: `kind`, `bucket` and `name` are the key of a row (for a segment and a replaced object, `bucket` has
the key of the object), and `row` its bytes, null if the row was removed. The group's own row has the kind
`group`. `ursula.model.checkpoint.checkpoint` describes the bytes of a row.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..objects.checksum import digest_of

FORMAT = 1
KINDS = ("group", "bucket", "stream", "segment", "replaced", "grave", "ingest")
"""The kinds of rows as they are stored, by their number in memory (`RowKind`)."""
BATCH_ROWS = 4096
ROW_GROUP_ROWS = 65_536

STATE_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("bucket", pa.string(), metadata={"PARQUET:field_id": "2"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "3"}),
        pa.field("row", pa.binary(), metadata={"PARQUET:field_id": "4"}),
    ]
)

Row = tuple[tuple[int, str, str], bytes | None]


class EncodedState(NamedTuple):
    """The bytes of a state object, and what a manifest says about it."""

    data: pa.Buffer
    rows: int
    digest: str


class StateRow(NamedTuple):
    """A row of a state object."""

    kind: int
    bucket: str
    name: str
    row: bytes | None


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Some rows as columns; intended for a few thousand at a time."""
    keys = [key for key, _ in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([KINDS[key[0]] for key in keys], pa.string()),
            pa.array([key[1] for key in keys], pa.string()),
            pa.array([key[2] for key in keys], pa.string()),
            pa.array([row for _, row in rows], pa.binary()),
        ],
        schema=STATE_SCHEMA,
    )


def encode_state(batches: Sequence[pa.RecordBatch]) -> EncodedState:
    """The state object of these rows. Blocking: for a thread."""
    table = pa.Table.from_batches(batches, schema=STATE_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        STATE_SCHEMA,
        compression="zstd",
        use_dictionary=["kind", "bucket"],
        write_statistics=["kind", "bucket", "name"],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata({"ursula.format": str(FORMAT)})
    data = sink.getvalue()
    return EncodedState(data, table.num_rows, digest_of(data))


def read_state(data: bytes, digest: str | None) -> Iterator[list[StateRow]]:
    """The rows of a state object, some at a time; ValueError if it is damaged. Blocking: for a thread."""
    if digest is not None and digest_of(data) != digest:
        raise ValueError("its digest does not match its manifest")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        version = (file.metadata.metadata or {}).get(b"ursula.format")
        if version != str(FORMAT).encode():
            raise ValueError(f"the format is {version!r}, not {FORMAT}")
        numbers = {kind: number for number, kind in enumerate(KINDS)}
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            kinds, buckets, names, rows = (column.to_pylist() for column in batch.columns)
            yield [
                StateRow(numbers.get(kind, -1), bucket or "", name or "", row)
                for kind, bucket, name, row in zip(kinds, buckets, names, rows, strict=True)
            ]
    except (pa.ArrowException, OSError, LookupError, zlib.error) as error:
        raise ValueError(str(error)) from error
