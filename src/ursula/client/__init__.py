"""A client for durable streams, to block on (`Client`) or to await (`AsyncClient`).

What is done is written once, as steps without connections (`steps`), in a file per subject; `blocking` and
`awaiting` perform these steps over httpx. Nothing of the server may enter here: the client knows the wire.

    with Client("http://127.0.0.1:4437") as client:
        orders = client.stream("shop/orders")
        orders.create("application/json")
        with orders.producer("checkout-1") as producer:
            producer.send_json({"order": 1})
        for message in orders.tail():
            print(message.value)
"""

from .address import StreamAddress, StreamUrl
from .appends import BatchResult
from .async_client import AsyncBucket, AsyncClient, AsyncStream, AsyncTail
from .async_producer import AsyncProducer
from .bootstrap import Start
from .buckets import BucketInfo, ListedStream
from .client import Bucket, Client, Stream, Tail
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
from .feeds import FeedEntry, FeedPage, FeedRow
from .framing import FrameReader, frame
from .operations import FlushedGroup, Undeleted
from .outbox import Batching
from .producer import Producer
from .records import Record
from .results import Appended, Chunk, Created, Message, StreamInfo
from .retry import Patience
from .snapshots import Published, Snapshot

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
