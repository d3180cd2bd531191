"""The blocking client: a server, its buckets and its streams. What they do is in the operations."""

from collections.abc import Generator, Iterator, Mapping
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
from .blocking import Blocking, BlockingShell, blocking, iterating
from .buckets import BucketInfo
from .delivery import Numbering
from .operations import FlushedGroup, Undeleted
from .options import Options, Text
from .outbox import Batching
from .producer import Producer
from .results import BEGINNING, Message
from .retry import FOREVER, Patience
from .steps import about
from .tail import Live, Place, Tailing, Wait, follow
from .target import BucketTarget, StreamTarget
from .transport import DEFAULT_URL, TIMEOUT_SECONDS, Wiring


class Stream(StreamTarget, Blocking):
    """One stream."""

    create = blocking(streams.create)
    close = blocking(streams.close)
    delete = blocking(streams.delete)
    head = blocking(target.head)

    append = blocking(appends.append)
    append_json = blocking(appends.append_json)
    append_batch = blocking(appends.append_batch)

    read = blocking(reads.read)
    read_all = iterating(reads.read_all)
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

    def tail(
        self,
        offset: str = BEGINNING,
        *,
        live: Live | None = None,
        decode: bool = True,
        timeout: float | None = None,
    ) -> "Tail":
        """Every message from an offset on, as it comes, until the stream is closed.

        Lost connections are made again. With a timeout it also ends when no message has come for so many
        seconds; 0 means as soon as it is up to date. Without `decode`, JSON values are given as their text.
        """
        place, wait = Place(offset, decode), Wait(timeout)
        return Tail(place, self.shell.iterate(about(self.path, follow(self, place, live, wait))))

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


class Tail(Tailing, Iterator[Message]):
    """The messages of a stream, and how far they have come. To leave early, use it with `with`."""

    def __init__(self, place: Place, messages: Generator[Message, None, None]) -> None:
        super().__init__(place)
        self._messages = messages

    def __next__(self) -> Message:
        return next(self._messages)

    def close(self) -> None:
        """Hang up."""
        self._messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Bucket(BucketTarget, Blocking):
    """One bucket."""

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
        auth: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        params: Mapping[str, Text] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: Patience | None = None,
        live_patience: Patience = FOREVER,
    ) -> None:
        own = {} if auth is None else {"authorization": auth}
        options = Options().plus(own, None).plus(headers, params)
        self._shell = BlockingShell(Wiring(url, timeout, options))
        self._patience = patience or Patience()
        self._live_patience = live_patience

    def stream(self, name: str | Address, content_type: str | None = None) -> Stream:
        """A stream, as in `bucket/stream` or at a full URL; it need not exist.

        Its type is asked for unless it is given.
        """
        address = address_of(name) if isinstance(name, str) else name
        stream = Stream(address, self._patience, self._live_patience, content_type)
        stream.shell = self._shell
        return stream

    def stream_at(self, path: str, content_type: str | None = None) -> Stream:
        """The stream at exactly this path, as in `/name`: other servers have streams anywhere."""
        return self.stream(StreamUrl(path), content_type)

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
