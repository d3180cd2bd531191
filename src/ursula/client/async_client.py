"""The asynchronous client: a server, its buckets and its streams."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import TracebackType
from typing import Self

from . import target
from .address import Address, StreamUrl, address_of
from .connection.async_shell import AsyncHandle, AsyncShell, async_iterator, async_method
from .connection.request_options import AsyncText, client_options
from .connection.retry import FOREVER, Patience
from .connection.steps import with_error_path
from .connection.transport import DEFAULT_URL, TIMEOUT_SECONDS, Endpoint
from .manage import admin, buckets, snapshots, streams
from .manage import attributes as attrs
from .manage.admin import FlushedGroup, Undeleted
from .manage.buckets import BucketInfo
from .read import bootstrap, chunks, feeds, json_records
from .read.live import Live, Wait
from .read.tail import TailProgress, TailStatus, follow_stream
from .results import BEGINNING, Message
from .target import BucketTarget, StreamTarget
from .write import appends
from .write.async_producer import AsyncProducer
from .write.delivery import ProducerIdentity
from .write.outbox import Batching


class AsyncStream(StreamTarget, AsyncHandle):
    """One stream. To stop an iteration early, wrap it in `contextlib.aclosing`."""

    create = async_method(streams.create)
    close = async_method(streams.close)
    delete = async_method(streams.delete)
    head = async_method(target.head)

    append = async_method(appends.append)
    append_json = async_method(appends.append_json)
    append_batch = async_method(appends.append_batch)

    read = async_method(chunks.read)
    read_all = async_iterator(chunks.read_all)
    last_lines = async_method(json_records.last_lines)
    records = async_iterator(json_records.records)

    attributes = async_method(attrs.attributes)
    set_attributes = async_method(attrs.set_attributes)
    clear_attributes = async_method(attrs.clear_attributes)

    publish_snapshot = async_method(snapshots.publish_snapshot)
    read_snapshot = async_method(snapshots.read_snapshot)
    latest_snapshot = async_method(snapshots.latest_snapshot)
    save_snapshot = async_method(snapshots.save_snapshot)
    delete_snapshot = async_method(snapshots.delete_snapshot)
    trim = async_method(snapshots.trim)
    bootstrap = async_iterator(bootstrap.bootstrap)

    def tail(
        self,
        offset: str = BEGINNING,
        *,
        live: Live | None = None,
        decode: bool = True,
        timeout: float | None = None,
    ) -> "AsyncTail":
        """Every message from an offset on, as it arrives, until the stream is closed.

        Reconnects when a connection is lost. With a timeout, the tail also ends when no message has arrived
        for that many seconds; 0 means as soon as it is up to date. Without `decode`, JSON values stay text.
        """
        progress, wait = TailProgress(offset, decode), Wait(timeout)
        messages = with_error_path(self.path, follow_stream(self, progress, live, wait))
        return AsyncTail(progress, self.shell.iterate(messages))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = True,
        batching: Batching | None = None,
    ) -> AsyncProducer:
        """A producer for this stream. One with an id takes over from an earlier one with the same id."""
        identity = ProducerIdentity(producer_id, epoch, auto_claim)
        return AsyncProducer(self, self.shell, identity, batching or Batching())


class AsyncTail(TailStatus, AsyncIterator[Message]):
    """The messages of a stream, and how far it has been read. To stop early, use it with `async with`."""

    def __init__(self, progress: TailProgress, messages: AsyncGenerator[Message, None]) -> None:
        super().__init__(progress)
        self._messages = messages

    async def __anext__(self) -> Message:
        return await anext(self._messages)

    async def aclose(self) -> None:
        """Stop, and close the connection."""
        await self._messages.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncBucket(BucketTarget, AsyncHandle):
    """One bucket."""

    create = async_method(buckets.create_bucket)
    info = async_method(buckets.bucket_info)
    delete = async_method(buckets.delete_bucket)
    streams = async_iterator(buckets.list_streams)
    feed = async_iterator(feeds.feed)
    feed_page = async_method(feeds.feed_page)


class AsyncClient:
    """A client of one server, which keeps its connections open and reuses them. Use it with `async with`."""

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
        options = client_options(auth, headers, params)
        self._shell = AsyncShell(Endpoint(url, timeout, options))
        self._patience = patience or Patience()
        self._live_patience = live_patience

    def stream(self, name: str | Address, content_type: str | None = None) -> AsyncStream:
        """A stream by name, such as `bucket/stream`, or by full URL; it need not exist.

        If no content type is given, the server is asked for it when it is needed.
        """
        stream = AsyncStream(address_of(name), self._patience, self._live_patience, content_type)
        stream.shell = self._shell
        return stream

    def stream_at(self, path: str, content_type: str | None = None) -> AsyncStream:
        """The stream at exactly this path, such as `/name`: other servers may have streams anywhere."""
        return self.stream(StreamUrl(path), content_type)

    def bucket(self, name: str) -> AsyncBucket:
        """A bucket; it need not exist."""
        bucket = AsyncBucket(name, self._patience, self._live_patience)
        bucket.shell = self._shell
        return bucket

    def buckets(self) -> AsyncGenerator[BucketInfo, None]:
        """All buckets, in the order of their names."""
        return self._shell.iterate(buckets.list_buckets(self._patience))

    async def flush(self) -> list[FlushedGroup]:
        """Flush everything in the server's memory to the store, and wait until that is done."""
        return await self._shell.run(admin.flush(self._patience))

    async def trigger_snapshot(self) -> None:
        """Ask the server to store its whole state soon."""
        await self._shell.run(admin.trigger_snapshot(self._patience))

    async def purge_log(self) -> int:
        """Trim the part of the server's log that is in the store. Returns the position it was trimmed to."""
        return await self._shell.run(admin.purge_log(self._patience))

    async def undelete(self, bucket: str, stream: str, incarnation: str | None = None) -> Undeleted:
        """Undelete the last stream of that name, or the one with that incarnation."""
        return await self._shell.run(admin.undelete(self._patience, bucket, stream, incarnation))

    async def close(self) -> None:
        """Close all connections."""
        await self._shell.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
