"""The asynchronous client: a server, its buckets and its streams. What they do is in the operations."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Self

from . import (
    appends,
    attrs,
    bootstrap,
    buckets,
    feeds,
    operations,
    reads,
    records,
    snapshots,
    streams,
    target,
)
from .address import Address, StreamUrl, address_of
from .async_producer import AsyncProducer
from .awaiting import Awaiting, AwaitingShell, awaiting, iterating
from .buckets import BucketInfo
from .delivery import Numbering
from .operations import FlushedGroup, Undeleted
from .options import AsyncText, Options
from .outbox import Batching
from .results import BEGINNING, Message
from .retry import FOREVER, Patience
from .steps import about
from .tail import Live, Place, Tailing, Wait, follow
from .target import BucketTarget, StreamTarget
from .transport import DEFAULT_URL, TIMEOUT_SECONDS, Wiring


class AsyncStream(StreamTarget, Awaiting):
    """One stream. To leave an iteration early, put it into `contextlib.aclosing`."""

    create = awaiting(streams.create)
    close = awaiting(streams.close)
    delete = awaiting(streams.delete)
    head = awaiting(target.head)

    append = awaiting(appends.append)
    append_json = awaiting(appends.append_json)
    append_batch = awaiting(appends.append_batch)

    read = awaiting(reads.read)
    read_all = iterating(reads.read_all)
    last_lines = awaiting(records.last_lines)
    records = iterating(records.records)

    attributes = awaiting(attrs.attributes)
    set_attributes = awaiting(attrs.set_attributes)
    clear_attributes = awaiting(attrs.clear_attributes)

    publish_snapshot = awaiting(snapshots.publish_snapshot)
    read_snapshot = awaiting(snapshots.read_snapshot)
    latest_snapshot = awaiting(snapshots.latest_snapshot)
    save_snapshot = awaiting(snapshots.save_snapshot)
    delete_snapshot = awaiting(snapshots.delete_snapshot)
    trim = awaiting(snapshots.trim)
    bootstrap = iterating(bootstrap.bootstrap)

    def tail(
        self,
        offset: str = BEGINNING,
        *,
        live: Live | None = None,
        decode: bool = True,
        timeout: float | None = None,
    ) -> "AsyncTail":
        """Every message from an offset on, as it comes, until the stream is closed.

        Lost connections are made again. With a timeout it also ends when no message has come for so many
        seconds; 0 means as soon as it is up to date. Without `decode`, JSON values are given as their text.
        """
        place, wait = Place(offset, decode), Wait(timeout)
        return AsyncTail(place, self.shell.iterate(about(self.path, follow(self, place, live, wait))))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = True,
        batching: Batching | None = None,
    ) -> AsyncProducer:
        """A producer for this stream. One with a name takes over from an earlier one of that name."""
        numbering = Numbering(producer_id, epoch, auto_claim)
        return AsyncProducer(self, self.shell, numbering, batching or Batching())


class AsyncTail(Tailing, AsyncIterator[Message]):
    """The messages of a stream, and how far they have come. To leave early, use it with `async with`."""

    def __init__(self, place: Place, messages: AsyncGenerator[Message, None]) -> None:
        super().__init__(place)
        self._messages = messages

    async def __anext__(self) -> Message:
        return await anext(self._messages)

    async def aclose(self) -> None:
        """Hang up."""
        await self._messages.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncBucket(BucketTarget, Awaiting):
    """One bucket."""

    create = awaiting(buckets.create_bucket)
    info = awaiting(buckets.bucket_info)
    delete = awaiting(buckets.delete_bucket)
    streams = iterating(buckets.list_streams)
    feed = iterating(feeds.feed)
    feed_page = awaiting(feeds.feed_page)


class AsyncClient:
    """A server to talk to; its connections are kept and used again. Use it with `async with`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        auth: AsyncText | None = None,
        headers: Mapping[str, AsyncText] | None = None,
        params: Mapping[str, AsyncText] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        live_patience: Patience = FOREVER,
    ) -> None:
        own = {} if auth is None else {"authorization": auth}
        options = Options().plus(own, None).plus(headers, params)
        self._shell = AwaitingShell(Wiring(url, timeout, options))
        self._patience = patience or Patience()
        self._live_patience = live_patience

    def stream(self, name: str | Address, content_type: str | None = None) -> AsyncStream:
        """A stream, as in `bucket/stream` or at a full URL; it need not exist.

        Its type is asked for unless it is given.
        """
        address = address_of(name) if isinstance(name, str) else name
        stream = AsyncStream(address, self._patience, self._live_patience, content_type)
        stream.shell = self._shell
        return stream

    def stream_at(self, path: str, content_type: str | None = None) -> AsyncStream:
        """The stream at exactly this path, as in `/name`: other servers have streams anywhere."""
        return self.stream(StreamUrl(path), content_type)

    def bucket(self, name: str) -> AsyncBucket:
        """A bucket; it need not exist."""
        bucket = AsyncBucket(name, self._patience, self._live_patience)
        bucket.shell = self._shell
        return bucket

    def buckets(self) -> AsyncGenerator[BucketInfo, None]:
        """All buckets, by name."""
        return self._shell.iterate(buckets.list_buckets(self._patience))

    async def flush(self) -> list[FlushedGroup]:
        """Have the server store everything that is in its memory, and wait until it is."""
        return await self._shell.run(operations.flush(self._patience))

    async def trigger_snapshot(self) -> None:
        """Have the server store its whole state, soon."""
        await self._shell.run(operations.trigger_snapshot(self._patience))

    async def purge_log(self) -> int:
        """Have the server's log forget what is in the store; how far it did."""
        return await self._shell.run(operations.purge_log(self._patience))

    async def undelete(self, bucket: str, stream: str, incarnation: str | None = None) -> Undeleted:
        """Bring back the last stream of that name, or the one with that incarnation, as it was."""
        return await self._shell.run(operations.undelete(self._patience, bucket, stream, incarnation))

    async def close(self) -> None:
        """Close all connections."""
        await self._shell.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
