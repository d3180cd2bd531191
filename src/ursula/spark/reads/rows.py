"""The rows of a partition as Arrow batches: cold ones from segments, hot ones from the feed."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from ...cold.segment.schema import SEGMENT_SCHEMA
from ..executor_store import ExecutorStore
from ..http_client import ServerClient
from .options import ReadOptions
from .partitions import ReadPartition
from .selection import Selection
from .view import PositionSpan, find_again

BATCH_ROWS = 16 << 10

PRODUCER_COLUMNS = ("producer_id", "producer_epoch", "producer_seq")


def schema_of(options: ReadOptions) -> pa.Schema:
    """The columns of a read: those of a segment, where the message is called `value`."""
    without = set() if options.include_producer else set(PRODUCER_COLUMNS)
    if not options.include_events:
        without.add("event")
    fields = [field for field in SEGMENT_SCHEMA if field.name not in without]
    return pa.schema([pa.field(_name(field.name), field.type) for field in fields])


def read_partition(
    options: ReadOptions, partition: InputPartition, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows of a partition."""
    if not isinstance(partition, ReadPartition):
        raise TypeError(f"{partition!r} is not a partition of a bucket")
    reader = _PartitionReader(options, partition, columns)
    for span in partition.spans:
        yield from reader.read(span)


class _PartitionReader:
    def __init__(self, options: ReadOptions, partition: ReadPartition, columns: Sequence[str]) -> None:
        self._options = options
        self._partition = partition
        self._selection = Selection(options)
        self._wanted = [stored_name(name) for name in columns]
        self._schema = pa.schema([schema_of(options).field(name) for name in columns])
        self._store: ExecutorStore | None = None

    def read(self, span: PositionSpan, retry: bool = True) -> Iterator[pa.RecordBatch]:
        if span.path is None:
            yield from self._hot(span)
            return
        try:
            yield from self._cold(span.path, span)
        except (FileNotFoundError, NotADirectoryError):
            if not retry:
                raise FileNotFoundError(self._missing(span.path)) from None
            for found in find_again(self._options, span):
                yield from self.read(found, retry=False)

    def _cold(self, path: str, span: PositionSpan) -> Iterator[pa.RecordBatch]:
        if self._store is None:
            self._store = ExecutorStore(self._partition.root, self._options.s3)
        segment = self._store.segment(path)
        with segment.file:
            row_groups = self._selection.row_groups(segment.footer)
            if not row_groups:
                return
            file = pq.ParquetFile(
                segment.file,
                metadata=segment.footer.metadata,
                pre_buffer=segment.is_remote,
                page_checksum_verification=True,
            )
            needed = self._selection.columns() | set(self._wanted)
            columns = [name for name in SEGMENT_SCHEMA.names if name in needed]
            for batch in file.iter_batches(BATCH_ROWS, row_groups, columns, use_threads=False):
                yield from self._chosen(batch, span)

    def _missing(self, path: str) -> str:
        return (
            f"{path} is missing in {self._partition.root}. Can this machine reach the store? If its root has "
            "another name here than on the server, set the option path"
        )

    def _hot(self, span: PositionSpan) -> Iterator[pa.RecordBatch]:
        options = self._options
        server = ServerClient(options.endpoint or "", options.retry_seconds, options.auth)
        until = min(span.last, self._partition.until)
        after = span.first
        while after < until:
            body, after = server.feed(self._options.bucket, after, until)
            with pa.ipc.open_stream(body) as stream:
                for batch in stream:
                    yield from self._chosen(batch, span)

    def _chosen(self, batch: pa.RecordBatch, span: PositionSpan) -> Iterator[pa.RecordBatch]:
        after = max(span.first, self._partition.after)
        rows = self._selection.rows(batch, after, min(span.last, self._partition.until))
        if rows.num_rows:
            yield pa.RecordBatch.from_arrays([rows[name] for name in self._wanted], schema=self._schema)


def _name(stored: str) -> str:
    return "value" if stored == "payload" else stored


def stored_name(name: str) -> str:
    """The name that a column of a read has in segments."""
    return "payload" if name == "value" else name
