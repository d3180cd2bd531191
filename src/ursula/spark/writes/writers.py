"""Spark's writers for a bucket: each row exactly once, however Spark partitions, repeats and retries.

Tasks append nothing. Each task stages its rows as objects with new names and reports those names. The driver
then asks the server to ingest the objects of the tasks that Spark has accepted, and repeats the request until
it is done. The server accepts the first list for each (app, version): for a streaming query, its id and the
number of the batch.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from ..options import OptionError
from .bulk_write import ingest, stage
from .options import COLUMNS, WriteOptions

_TYPES: dict[str, tuple[DataType, ...]] = {
    "stream": (StringType(),),
    "value": (BinaryType(), StringType()),
    "content_type": (StringType(),),
}


@dataclass
class StagedRows(WriterCommitMessage):
    """The objects that a task has staged, and for which query."""

    objects: list[str]
    query: str | None


class BucketWriter(DataSourceArrowWriter):
    """A batch write. If the user names no transaction, each write is a transaction of its own."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._app = options.app or f"write-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        return StagedRows(stage(self._options, iterator), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows of all tasks."""
        ingest(self._options, self._app, self._options.version or 0, _objects(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete nothing: a commit with an unknown outcome may need them. The server deletes orphans."""


class BucketStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each batch is one transaction of its query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        if options.app is not None:
            raise OptionError("txnAppId is for batches: a streaming query is identified by its id")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return StagedRows(stage(self._options, iterator), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append the rows of all tasks, unless an earlier attempt of this batch has done so."""
        queries = {message.query for message in messages if isinstance(message, StagedRows)}
        if not queries:
            return
        query = queries.pop()
        if query is None or queries:
            raise RuntimeError("Spark did not report which query the rows of a batch belong to")
        ingest(self._options, query, batchId, _objects(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete nothing, as in a batch write."""


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Reject a table whose columns are not those of rows to append."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in ("stream", "value"):
        if name not in types:
            raise OptionError(f"the column {name} is needed; there are {', '.join(types)}")
    for name, kinds in _TYPES.items():
        if name in types and types[name] not in kinds:
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise OptionError(f"the column {name} must be {wanted}, not {types[name].simpleString()}")
    for name in options.order_by:
        if name not in types:
            raise OptionError(f"orderBy names {name}, which is not a column; there are {', '.join(types)}")
    others = types.keys() - set(COLUMNS) - set(options.order_by)
    if others:
        raise OptionError(
            f"the column {sorted(others)[0]} cannot be written: select stream, value and content_type"
        )


def _objects(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [name for message in messages if isinstance(message, StagedRows) for name in message.objects]
