"""Writes and reads the files of states, for the job `materialize`."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...cold.objects.ulid import new_ulid
from ..executor_store import ExecutorStore
from ..options import S3Options
from .fold import JSON, STATE, STATES

_WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("states", pa.int64()),
        ("changed", pa.int64()),
        ("partial", pa.int64()),
        ("published", pa.string()),
    ]
)
_KEPT = [name for name in STATES.names if name not in ("changed", "published")]


def write_states(
    target: str, s3: S3Options, folder: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the states of a task to one file, if there are any; yields its path and contents."""
    name = f"{new_ulid()}.parquet"
    count = changed = partial = 0
    published: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ursula-states-") as scratch:
        path = Path(scratch) / name
        schema = pa.schema([STATES.field(one) for one in _KEPT])
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch.select(_KEPT))
                count += batch.num_rows
                partial += batch["state"].null_count
                changed += pc.sum(batch["changed"]).as_py() or 0
                published.update(word for word in batch["published"].to_pylist() if word is not None)
        if not count:
            return
        ExecutorStore(target, s3).put_file(path, f"{folder}/{name}")
    row = {
        "path": f"{folder}/{name}",
        "states": count - partial,
        "changed": changed,
        "partial": partial,
        "published": json.dumps(published),
    }
    yield pa.RecordBatch.from_pylist([row], schema=_WRITTEN)


def read_states(target: str, s3: S3Options, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The states in these files, as rows to fold. They sort before all other rows of their streams."""
    store = ExecutorStore(target, s3)
    for path in paths:
        table = pq.read_table(pa.BufferReader(store.read(path)))
        count = table.num_rows
        rows = pa.table(
            {
                "stream": table["stream"],
                "incarnation": table["incarnation"],
                "step": pa.repeat(pa.scalar(STATE, pa.int32()), count),
                "is_json": pc.fill_null(pc.equal(table["content_type"], JSON), False),
                "offset": table["offset"],
                "next_offset": table["offset"],
                "position": table["position"],
                "index": pa.repeat(pa.scalar(0, pa.int32()), count),
                "value": table["state"],
            }
        )
        yield from rows.to_batches()
