"""Writes rows to Parquet files, each with the rows of one day, for the job `export`."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...cold.objects.ulid import new_ulid
from ..executor_store import ExecutorStore
from ..options import S3Options

FILE_BYTES = 128 << 20
"""About how many bytes of rows go into one file."""

UNFINISHED = "_ursula/tmp"
"""Readers of Parquet skip names that begin with an underscore."""

WRITTEN = pa.schema(
    [("staged", pa.string()), ("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
)
"""A task's report on each file: where it is, where it will be, and how large it is."""


def write_days(
    target: str, s3: S3Options, staging: str, bucket: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows to files that are not visible yet, by the day (in UTC) on which they were appended."""
    store = ExecutorStore(target, s3, UNFINISHED)
    with tempfile.TemporaryDirectory(prefix="ursula-export-") as folder:
        open_files: dict[str, _DayFile] = {}
        for batch in batches:
            for day, rows in _by_day(batch):
                file = open_files.get(day)
                if file is None:
                    file = open_files[day] = _DayFile(Path(folder), rows.schema)
                file.write(rows)
                if file.size >= FILE_BYTES:
                    yield open_files.pop(day).finish(store, staging, day, bucket)
        for day, file in open_files.items():
            yield file.finish(store, staging, day, bucket)


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    times = pc.cast(batch["appended_at"], pa.timestamp("us", "UTC"))
    days = pc.cast(pc.cast(times, pa.date32()), pa.string())
    for day in pc.unique(days).to_pylist():
        yield day, batch.filter(pc.equal(days, day))


class _DayFile:
    """A file with the rows of one day. It is on this machine until it is complete."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path = folder / f"{new_ulid()}.parquet"
        self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        self._rows = 0
        self.size = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self._rows += rows.num_rows
        self.size += rows.nbytes

    def finish(self, store: ExecutorStore, staging: str, day: str, bucket: str) -> pa.RecordBatch:
        self._writer.close()
        staged = f"{staging}/{self._path.name}"
        store.put_file(self._path, staged)
        path = f"date={day}/bucket={bucket}/{self._path.name}"
        facts = [[staged], [path], [self._rows], [self._path.stat().st_size]]
        self._path.unlink()
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(facts, WRITTEN, strict=True)],
            schema=WRITTEN,
        )
