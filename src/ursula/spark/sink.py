"""Writing rows to a bucket, each exactly once, however they are partitioned and whatever is tried again.

Tasks append nothing: each stages its rows as objects with new names and hands over those names. The driver
then asks the server to ingest the objects of the tasks that count, and repeats that until it is done. The
server takes the first list for (app, version): for a streaming query its id and the number of the batch.
"""

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from .options import OptionError
from .server import ServerApi
from .write_options import WriteOptions

OBJECT_BYTES = 64 << 20
"""About how much a task gathers before it stages it."""

TOLD = 20
"""So many refused rows are logged."""

_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "stream": (StringType(),),
    "value": (BinaryType(), StringType()),
    "content_type": (StringType(),),
}

logger = logging.getLogger(__name__)


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged, and for which query."""

    objects: list[str]
    query: str | None


class BucketWriter(DataSourceArrowWriter):
    """A batch write. Without a transaction of the user's it is one of its own."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._app = options.app or f"write-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        return Staged(stage(self._options, iterator), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append all of them."""
        ingest(self._options, self._app, self._options.version or 0, _objects(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is removed: a commit whose outcome is unknown may need it. The server collects the rest."""


class BucketStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each batch is one transaction of its query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        if options.app is not None:
            raise OptionError("txnAppId is for batches: a streaming query is known by its id")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return Staged(stage(self._options, iterator), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append all of them, unless an earlier try of this batch has."""
        queries = {message.query for message in messages if isinstance(message, Staged)}
        if not queries:
            return
        query = queries.pop()
        if query is None or queries:
            raise RuntimeError("Spark did not say to which query the rows of a batch belong")
        ingest(self._options, query, batchId, _objects(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As with a batch write."""


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse a table that is not one of rows to append."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in ("stream", "value"):
        if name not in types:
            raise OptionError(f"the column {name} is needed; there are {', '.join(types)}")
    for name, kinds in _COLUMNS.items():
        if name in types and types[name] not in kinds:
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise OptionError(f"the column {name} must be {wanted}, not {types[name].simpleString()}")
    for name in options.order_by:
        if name not in types:
            raise OptionError(f"orderBy names {name}, which is no column; there are {', '.join(types)}")
    others = types.keys() - _COLUMNS.keys() - set(options.order_by)
    if others:
        raise OptionError(
            f"nothing can be done with the column {sorted(others)[0]}: select stream, value and content_type"
        )


def stage(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Store rows under new names; returns those, in the order of the rows."""
    server = ServerApi(options.endpoint, options.retry_seconds)
    return [server.stage(options.bucket, body) for body in _bodies(options, batches)]


def ingest(options: WriteOptions, app: str, version: int, objects: Sequence[str]) -> None:
    """Have the rows of these objects appended; what was refused and dropped is logged."""
    server = ServerApi(options.endpoint, options.retry_seconds)
    report = server.ingest(
        {
            "bucket": options.bucket,
            "app": app,
            "version": version,
            "objects": list(objects),
            "create_streams": options.create_streams,
            "content_type": options.content_type,
            "on_refused": options.on_refused,
        }
    )
    if report["refused_count"]:
        logger.warning("%d rows were refused and dropped", report["refused_count"])
        for row in report["refused"][:TOLD]:
            logger.warning("refused by %s: %s (%s)", row["stream"], row["detail"], row["reason"])


def _objects(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [name for message in messages if isinstance(message, Staged) for name in message.objects]


def _bodies(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Arrow streams of about as many bytes as an object should have."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in _in_order(options, batches):
        for part in _halved(batch):
            if gathered and size + part.nbytes > OBJECT_BYTES:
                yield _body(gathered)
                gathered, size = [], 0
            gathered.append(part)
            size += part.nbytes
    if gathered:
        yield _body(gathered)


def _in_order(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they came, or all of the task by the columns of `orderBy`; with the columns that count."""
    if options.order_by:
        every = list(batches)
        if not every:
            return
        keys = [(name, "ascending") for name in options.order_by]
        batches = pa.Table.from_batches(every).sort_by(keys).to_batches()
    for batch in batches:
        if batch.num_rows:
            yield batch.select([name for name in _COLUMNS if name in batch.schema.names])


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts that fit into an object, as far as that is possible."""
    if batch.nbytes <= OBJECT_BYTES or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halved(batch.slice(0, middle))
    yield from _halved(batch.slice(middle))


def _body(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())
