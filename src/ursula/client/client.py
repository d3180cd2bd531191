"""The blocking client: a server, its buckets and its streams. What they do is in the operations."""

from collections.abc import Generator
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
    tail,
    target,
)
from .address import StreamAddress
from .blocking import BlockingShell, blocking, iterating
from .buckets import BucketInfo
from .delivery import Numbering
from .operations import FlushedGroup, Undeleted
from .outbox import Batching
from .producer import Producer
from .retry import FOREVER, Patience
from .target import BucketTarget, StreamTarget
from .transport import DEFAULT_URL, TIMEOUT_SECONDS, Wiring


class Stream(StreamTarget):
    """One stream."""

    shell: BlockingShell

    create = blocking(streams.create)
    close = blocking(streams.close)
    delete = blocking(streams.delete)
    head = blocking(target.head)

    append = blocking(appends.append)
    append_json = blocking(appends.append_json)
    append_batch = blocking(appends.append_batch)

    read = blocking(reads.read)
    read_all = iterating(reads.read_all)
    tail = iterating(tail.tail)
    last_lines = blocking(records.last_lines)
    records = iterating(records.records)

    attributes = blocking(attrs.attributes)
    set_attributes = blocking(attrs.set_attributes)
    clear_attributes = blocking(attrs.clear_attributes)

    publish_snapshot = blocking(snapshots.publish_snapshot)
    read_snapshot = blocking(snapshots.read_snapshot)
    latest_snapshot = blocking(snapshots.latest_snapshot)
    save_snapshot = blocking(snapshots.save_snapshot)
    delete_snapshot = blocking(snapshots.delete_snapshot)
    trim = blocking(snapshots.trim)
    bootstrap = iterating(bootstrap.bootstrap)

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = True,
        batching: Batching | None = None,
    ) -> Producer:
        """A producer for this stream. One with a name takes over from an earlier one of that name."""
        numbering = Numbering(producer_id, epoch, auto_claim)
        return Producer(self, self.shell, numbering, batching or Batching())


class Bucket(BucketTarget):
    """One bucket."""

    shell: BlockingShell

    create = blocking(buckets.create_bucket)
    info = blocking(buckets.bucket_info)
    delete = blocking(buckets.delete_bucket)
    streams = iterating(buckets.list_streams)
    feed = iterating(feeds.feed)
    feed_page = blocking(feeds.feed_page)


class Client:
    """A server to talk to; its connections are kept and used again. Use it with `with`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        auth: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        live_patience: Patience = FOREVER,
    ) -> None:
        self._shell = BlockingShell(Wiring(url, auth, timeout))
        self._patience = patience or Patience()
        self._live_patience = live_patience

    def stream(self, name: str | StreamAddress, content_type: str | None = None) -> Stream:
        """A stream, as in `bucket/stream`; it need not exist. Its type is asked for unless it is given."""
        address = StreamAddress.parse(name) if isinstance(name, str) else name
        stream = Stream(address, self._patience, self._live_patience, content_type)
        stream.shell = self._shell
        return stream

    def bucket(self, name: str) -> Bucket:
        """A bucket; it need not exist."""
        bucket = Bucket(name, self._patience, self._live_patience)
        bucket.shell = self._shell
        return bucket

    def buckets(self) -> Generator[BucketInfo, None, None]:
        """All buckets, by name."""
        return self._shell.iterate(buckets.list_buckets(self._patience))

    def flush(self) -> list[FlushedGroup]:
        """Have the server store everything that is in its memory, and wait until it is."""
        return self._shell.run(operations.flush(self._patience))

    def trigger_snapshot(self) -> None:
        """Have the server store its whole state, soon."""
        self._shell.run(operations.trigger_snapshot(self._patience))

    def purge_log(self) -> int:
        """Have the server's log forget what is in the store; how far it did."""
        return self._shell.run(operations.purge_log(self._patience))

    def undelete(self, bucket: str, stream: str, incarnation: str | None = None) -> Undeleted:
        """Bring back the last stream of that name, or the one with that incarnation, as it was."""
        return self._shell.run(operations.undelete(self._patience, bucket, stream, incarnation))

    def close(self) -> None:
        """Close all connections."""
        self._shell.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
