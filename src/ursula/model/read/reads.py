"""All reads of a state: streams, listings, feeds.

They return the state as of the last log entry applied, as values that could cross to another process.
"""

from itertools import islice
from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..decide.refusals import bucket_not_found, inside_json_message, trimmed_off
from ..offsets import TAIL
from ..outcomes import (
    BucketDescription,
    Description,
    FeedPage,
    Listed,
    Listing,
    Page,
    RecordPage,
    Refused,
)
from ..stream.messages import Payload
from ..stream.row import StreamRow, read_row
from ..stream.stream import Stream
from .feed import read_feed
from .not_in_memory import FeedNotInMemory, NotInMemory, all_in_memory
from .records import read_records

if TYPE_CHECKING:
    from ..state import State


class Reads:
    """The reads of a state."""

    def __init__(self, state: "State") -> None:
        self._state = state

    def describe(self, bucket: str, name: str, incarnation: str | None = None) -> Description | Refused:
        """The description of a stream as it is now."""
        stream = self._state.visible(bucket, name, incarnation)
        if isinstance(stream, Refused):
            return stream
        return Description(
            incarnation=stream.incarnation,
            content_type=stream.content_type,
            tail=stream.tail,
            closed=stream.closed,
            ttl_seconds=stream.ttl_seconds,
            expires_at=stream.expires_at,
            earliest=stream.earliest,
            snapshot=stream.snapshot,
            attributes=stream.attributes,
            first_record=stream.first_record if stream.is_json else None,
            next_record=stream.next_record if stream.is_json else None,
        )

    def describe_bucket(self, name: str) -> BucketDescription | Refused:
        """The description of a bucket as it is now."""
        bucket = self._state.buckets.get(name)
        if bucket is None:
            return bucket_not_found(name)
        return _described(bucket)

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""
        names = self._state.bucket_names.irange(after, inclusive=(False, True))
        return [_described(self._state.buckets[name]) for name in islice(names, count)]

    def list_streams(self, bucket: str, prefix: str, after: str, count: int) -> Listing | Refused:
        """The next streams of a bucket by name, among those whose names begin with the prefix."""
        found = self._state.buckets.get(bucket)
        if found is None:
            return bucket_not_found(bucket)
        if after >= prefix:
            names = found.names.irange(after, inclusive=(False, True))
        else:
            names = found.names.irange(prefix)
        streams: list[Listed] = []
        for name in names:
            if not name.startswith(prefix):
                break
            if len(streams) == count:
                return Listing(streams, has_more=True)
            streams.append(_listed(name, found))
        return Listing(streams, has_more=False)

    def read_feed(
        self, bucket: str, after: int | None, until: int | None, bytes_max: int, with_slices: bool = False
    ) -> FeedPage | Refused | FeedNotInMemory:
        """The rows of a bucket's journal after a position: see feed.py."""
        found = self._state.buckets.get(bucket)
        if found is None:
            return bucket_not_found(bucket)
        return read_feed(
            found,
            applied=self._state.position,
            stored_to=self._state.stored_to,
            after=after,
            until=until,
            bytes_max=bytes_max,
            with_slices=with_slices,
        )

    def read_records(
        self,
        bucket: str,
        name: str,
        record: int | None,
        tail_records: int | None,
        records_max: int,
        bytes_max: int,
        incarnation: str | None = None,
        offset: int | None = None,
    ) -> RecordPage | Refused | NotInMemory:
        """Messages of a JSON stream by their ordinals: see records.py."""
        stream = self._state.visible(bucket, name, incarnation)
        if isinstance(stream, Refused):
            return stream
        return read_records(
            stream,
            record=record,
            tail_records=tail_records,
            records_max=records_max,
            bytes_max=bytes_max,
            offset=offset,
        )

    def read(
        self, bucket: str, name: str, offset: int, bytes_max: int, whole: bool, incarnation: str | None = None
    ) -> Page | Refused | NotInMemory:
        """About `bytes_max` bytes of a stream from an offset on, which may be BEGINNING or TAIL.

        JSON messages are never cut; with `whole`, other messages are not cut either.
        """
        stream = self._state.visible(bucket, name, incarnation)
        if isinstance(stream, Refused):
            return stream
        tail = stream.tail
        if offset < 0:
            offset = tail if offset == TAIL else stream.earliest
        elif offset < stream.earliest:
            return trimmed_off(stream)
        elif offset > tail:
            return Refused(
                "offset_beyond_tail", f"the stream ends at {tail}", stream.incarnation, tail, stream.closed
            )
        chunks: list[Payload] = []
        next_offset = offset
        if offset < tail:
            if not stream.holds(offset):
                return NotInMemory(stream, offset)
            is_json = stream.is_json
            if is_json and not stream.is_boundary(offset):
                return inside_json_message(stream)
            next_offset = stream.read(offset, bytes_max, whole or is_json, chunks)
            if not all_in_memory(stream, chunks):
                return NotInMemory(stream, offset)
        return Page(  # positional, since most reads come here
            stream.incarnation,
            stream.content_type,
            stream.media_type,
            chunks,  # type: ignore[arg-type]
            offset,
            next_offset,
            tail,
            stream.closed,
        )


def _described(bucket: Bucket) -> BucketDescription:
    return BucketDescription(bucket.name, len(bucket.names), bucket.created_at)


def _listed(name: str, bucket: Bucket) -> Listed:
    """A stream as a listing shows it. A parked stream stays parked."""
    stream: Stream | StreamRow | None = bucket.streams.get(name)
    if stream is None:
        stream = read_row(bucket.parked[name])
    return Listed(
        name=name,
        closed=stream.closed,
        content_type=stream.content_type,
        tail=stream.tail,
        created_at=stream.created_at,
        last_write_at=stream.last_write_at,
    )
