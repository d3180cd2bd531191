"""The rows of a partition as Arrow batches: from segments, and from the feed what is in memory only."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from ..cold.segment.schema import SEGMENT_SCHEMA
from .options import ReadOptions
from .planning import Stretch, Task, found_again
from .selection import Selection
from .server import ServerApi
from .store import StoreFiles

BATCH_ROWS = 16 << 10

PRODUCER_COLUMNS = ("producer_id", "producer_epoch", "producer_seq")


def schema_of(options: ReadOptions) -> pa.Schema:
    """The columns of a read: those of a segment, with the message as `value`."""
    without = set() if options.include_producer else set(PRODUCER_COLUMNS)
    if not options.include_events:
        without.add("event")
    fields = [field for field in SEGMENT_SCHEMA if field.name not in without]
    return pa.schema([pa.field(_name(field.name), field.type) for field in fields])


def read_task(options: ReadOptions, task: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a partition with these columns."""
    if not isinstance(task, Task):
        raise TypeError(f"{task!r} is no partition of a bucket")
    reading = _Reading(options, task, columns)
    for stretch in task.stretches:
        yield from reading.stretch(stretch)


class _Reading:
    def __init__(self, options: ReadOptions, task: Task, columns: Sequence[str]) -> None:
        self._options = options
        self._task = task
        self._selection = Selection(options)
        self._wanted = [stored_name(name) for name in columns]
        self._schema = pa.schema([schema_of(options).field(name) for name in columns])
        self._store: StoreFiles | None = None

    def stretch(self, stretch: Stretch, again: bool = True) -> Iterator[pa.RecordBatch]:
        if stretch.path is None:
            yield from self._hot(stretch)
            return
        try:
            yield from self._cold(stretch.path, stretch)
        except (FileNotFoundError, NotADirectoryError):
            if not again:
                raise FileNotFoundError(self._missing(stretch.path)) from None
            for found in found_again(self._options, stretch):
                yield from self.stretch(found, again=False)

    def _cold(self, path: str, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        if self._store is None:
            self._store = StoreFiles(self._task.root, self._options.s3)
        segment = self._store.segment(path)
        with segment.file:
            row_groups = self._selection.row_groups(segment.footer)
            if not row_groups:
                return
            file = pq.ParquetFile(
                segment.file,
                metadata=segment.footer.metadata,
                pre_buffer=segment.is_far,
                page_checksum_verification=True,
            )
            needed = self._selection.columns() | set(self._wanted)
            columns = [name for name in SEGMENT_SCHEMA.names if name in needed]
            for batch in file.iter_batches(BATCH_ROWS, row_groups, columns, use_threads=False):
                yield from self._chosen(batch, stretch)

    def _missing(self, path: str) -> str:
        return (
            f"there is no {path} in {self._task.root}, and it should be there. Is the store reached from "
            "this machine? If it is elsewhere than where the server has it, set the option path"
        )

    def _hot(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        server = ServerApi(self._options.endpoint or "", self._options.retry_seconds)
        until = min(stretch.last, self._task.until)
        after = stretch.first
        while after < until:
            body, after = server.feed(self._options.bucket, after, until)
            with pa.ipc.open_stream(body) as stream:
                for batch in stream:
                    yield from self._chosen(batch, stretch)

    def _chosen(self, batch: pa.RecordBatch, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        after = max(stretch.first, self._task.after)
        rows = self._selection.rows(batch, after, min(stretch.last, self._task.until))
        if rows.num_rows:
            yield pa.RecordBatch.from_arrays([rows[name] for name in self._wanted], schema=self._schema)


def _name(stored: str) -> str:
    return "value" if stored == "payload" else stored


def stored_name(name: str) -> str:
    """What a column of a read is called in segments."""
    return "payload" if name == "value" else name
