"""A client for durable streams, to block on (`Client`) or to await (`AsyncClient`).

Each operation is written once, as a generator of steps that does no I/O itself (`connection.steps`); the
two shells, `connection.sync_shell` and `connection.async_shell`, perform the steps over httpx. Operations are
in `read`, `write` and `manage`. The client knows only the wire protocol: it may not import anything of the
server.

    with Client("http://127.0.0.1:4437") as client:
        orders = client.stream("shop/orders")
        orders.create("application/json")
        with orders.producer("checkout-1") as producer:
            producer.send_json({"order": 1})
        for message in orders.tail():
            print(message.value)
"""

from .address import StreamAddress, StreamUrl
from .async_client import AsyncBucket, AsyncClient, AsyncStream, AsyncTail
from .client import Bucket, Client, Stream, Tail
from .connection.retry import Patience
from .errors import (
    Closed,
    Fenced,
    Gone,
    InvalidAnswer,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Refused,
    Retryable,
    StreamError,
)
from .formats.frames import FrameReader, frame
from .manage.admin import FlushedGroup, Undeleted
from .manage.buckets import BucketInfo, ListedStream
from .manage.snapshots import Published, Snapshot
from .read.bootstrap import Start
from .read.feeds import FeedEntry, FeedPage, FeedRow
from .read.json_records import Record
from .results import Appended, Chunk, Created, Message, StreamInfo
from .write.appends import BatchResult
from .write.async_producer import AsyncProducer
from .write.outbox import Batching
from .write.producer import Producer

__all__ = [
    "Appended",
    "AsyncBucket",
    "AsyncClient",
    "AsyncProducer",
    "AsyncStream",
    "AsyncTail",
    "BatchResult",
    "Batching",
    "Bucket",
    "BucketInfo",
    "Chunk",
    "Client",
    "Closed",
    "Created",
    "FeedEntry",
    "FeedPage",
    "FeedRow",
    "Fenced",
    "FlushedGroup",
    "FrameReader",
    "Gone",
    "InvalidAnswer",
    "ListedStream",
    "Message",
    "NotFound",
    "OutcomeUnknown",
    "Patience",
    "PreconditionFailed",
    "Producer",
    "Published",
    "Record",
    "Refused",
    "Retryable",
    "Snapshot",
    "Start",
    "Stream",
    "StreamAddress",
    "StreamError",
    "StreamInfo",
    "StreamUrl",
    "Tail",
    "Undeleted",
    "frame",
]
