"""The blocking client: a server, its buckets and its streams."""

from collections.abc import Generator, Iterator, Mapping
from types import TracebackType
from typing import Self

from . import target
from .address import Address, StreamUrl, address_of
from .connection.request_options import Text, client_options
from .connection.retry import FOREVER, Patience
from .connection.steps import with_error_path
from .connection.sync_shell import SyncHandle, SyncShell, sync_iterator, sync_method
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
from .write.delivery import ProducerIdentity
from .write.outbox import Batching
from .write.producer import Producer


class Stream(StreamTarget, SyncHandle):
    """One stream."""

    create = sync_method(streams.create)
    close = sync_method(streams.close)
    delete = sync_method(streams.delete)
    head = sync_method(target.head)

    append = sync_method(appends.append)
    append_json = sync_method(appends.append_json)
    append_batch = sync_method(appends.append_batch)

    read = sync_method(chunks.read)
    read_all = sync_iterator(chunks.read_all)
    last_lines = sync_method(json_records.last_lines)
    records = sync_iterator(json_records.records)

    attributes = sync_method(attrs.attributes)
    set_attributes = sync_method(attrs.set_attributes)
    clear_attributes = sync_method(attrs.clear_attributes)

    publish_snapshot = sync_method(snapshots.publish_snapshot)
    read_snapshot = sync_method(snapshots.read_snapshot)
    latest_snapshot = sync_method(snapshots.latest_snapshot)
    save_snapshot = sync_method(snapshots.save_snapshot)
    delete_snapshot = sync_method(snapshots.delete_snapshot)
    trim = sync_method(snapshots.trim)
    bootstrap = sync_iterator(bootstrap.bootstrap)

    def tail(
        self,
        offset: str = BEGINNING,
        *,
        live: Live | None = None,
        decode: bool = True,
        timeout: float | None = None,
    ) -> "Tail":
        """Every message from an offset on, as it arrives, until the stream is closed.

        Reconnects when a connection is lost. With a timeout, the tail also ends when no message has arrived
        for that many seconds; 0 means as soon as it is up to date. Without `decode`, JSON values stay text.
        """
        progress, wait = TailProgress(offset, decode), Wait(timeout)
        messages = with_error_path(self.path, follow_stream(self, progress, live, wait))
        return Tail(progress, self.shell.iterate(messages))

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = True,
        batching: Batching | None = None,
    ) -> Producer:
        """A producer for this stream. One with an id takes over from an earlier one with the same id."""
        identity = ProducerIdentity(producer_id, epoch, auto_claim)
        return Producer(self, self.shell, identity, batching or Batching())


class Tail(TailStatus, Iterator[Message]):
    """The messages of a stream, and how far it has been read. To stop early, use it with `with`."""

    def __init__(self, progress: TailProgress, messages: Generator[Message, None, None]) -> None:
        super().__init__(progress)
        self._messages = messages

    def __next__(self) -> Message:
        return next(self._messages)

    def close(self) -> None:
        """Stop, and close the connection."""
        self._messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Bucket(BucketTarget, SyncHandle):
    """One bucket."""

    create = sync_method(buckets.create_bucket)
    info = sync_method(buckets.bucket_info)
    delete = sync_method(buckets.delete_bucket)
    streams = sync_iterator(buckets.list_streams)
    feed = sync_iterator(feeds.feed)
    feed_page = sync_method(feeds.feed_page)


class Client:
    """A client of one server, which keeps its connections open and reuses them. Use it with `with`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        auth: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        params: Mapping[str, Text] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        live_patience: Patience = FOREVER,
    ) -> None:
        options = client_options(auth, headers, params)
        self._shell = SyncShell(Endpoint(url, timeout, options))
        self._patience = patience or Patience()
        self._live_patience = live_patience

    def stream(self, name: str | Address, content_type: str | None = None) -> Stream:
        """A stream by name, such as `bucket/stream`, or by full URL; it need not exist.

        If no content type is given, the server is asked for it when it is needed.
        """
        stream = Stream(address_of(name), self._patience, self._live_patience, content_type)
        stream.shell = self._shell
        return stream

    def stream_at(self, path: str, content_type: str | None = None) -> Stream:
        """The stream at exactly this path, such as `/name`: other servers may have streams anywhere."""
        return self.stream(StreamUrl(path), content_type)

    def bucket(self, name: str) -> Bucket:
        """A bucket; it need not exist."""
        bucket = Bucket(name, self._patience, self._live_patience)
        bucket.shell = self._shell
        return bucket

    def buckets(self) -> Generator[BucketInfo, None, None]:
        """All buckets, in the order of their names."""
        return self._shell.iterate(buckets.list_buckets(self._patience))

    def flush(self) -> list[FlushedGroup]:
        """Flush everything in the server's memory to the store, and wait until that is done."""
        return self._shell.run(admin.flush(self._patience))

    def trigger_snapshot(self) -> None:
        """Ask the server to store its whole state soon."""
        self._shell.run(admin.trigger_snapshot(self._patience))

    def purge_log(self) -> int:
        """Trim the part of the server's log that is in the store. Returns the position it was trimmed to."""
        return self._shell.run(admin.purge_log(self._patience))

    def undelete(self, bucket: str, stream: str, incarnation: str | None = None) -> Undeleted:
        """Undelete the last stream of that name, or the one with that incarnation."""
        return self._shell.run(admin.undelete(self._patience, bucket, stream, incarnation))

    def close(self) -> None:
        """Close all connections."""
        self._shell.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
