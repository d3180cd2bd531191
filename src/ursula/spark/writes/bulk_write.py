"""A bulk write: rows that tasks stage as objects, and the server's request to ingest them."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ..http_client import ServerClient
from .options import COLUMNS, WriteOptions

OBJECT_BYTES = 64 << 20
"""About how many bytes a task collects before it stages an object."""

REFUSED_LOGGED_MAX = 20

logger = logging.getLogger(__name__)


def stage(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Stage rows as objects with new names; returns the names, in the order of the rows."""
    server = ServerClient(options.endpoint, options.retry_seconds, options.auth)
    return [server.stage(options.bucket, body) for body in _bodies(options, batches)]


def ingest(options: WriteOptions, app: str, version: int, objects: Sequence[str]) -> None:
    """Append the rows of these objects; rows that were refused and dropped are logged."""
    server = ServerClient(options.endpoint, options.retry_seconds, options.auth)
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
        for row in report["refused"][:REFUSED_LOGGED_MAX]:
            logger.warning("refused by %s: %s (%s)", row["stream"], row["detail"], row["reason"])


def _bodies(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The rows as Arrow streams, each about as large as an object should be."""
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
    """The columns to write, in the order of the rows, or sorted by the columns of `orderBy`."""
    if options.order_by:
        every = list(batches)
        if not every:
            return
        keys = [(name, "ascending") for name in options.order_by]
        batches = pa.Table.from_batches(every).sort_by(keys).to_batches()
    for batch in batches:
        if batch.num_rows:
            yield batch.select([name for name in COLUMNS if name in batch.schema.names])


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts that fit into an object, insofar as that is possible."""
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
