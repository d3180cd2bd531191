"""What is there: the buckets and streams of a group, and every way to look at them.

Reads are answered from the state as it was applied last, as values that could cross to another process.
"""

from itertools import islice

from sortedcontainers import SortedList

from .bucket import Bucket
from .commands import StoredSegment
from .deleted import Graves
from .journal import Gauge, Journal
from .outcomes import (
    BucketDescription,
    Description,
    FeedPage,
    Ingest,
    Listed,
    Listing,
    Page,
    RecordPage,
    Refused,
)
from .read.feed import read_feed
from .read.held import FeedNotHeld, NotHeld, all_held
from .read.records import read_records
from .store_view.dirty_rows import Changes
from .store_view.segments import SegmentTable
from .store_view.store_state import Stored
from .stream.messages import Payload
from .stream.row import StreamRow, read_row
from .stream.stream import Stream
from .transitions.append import bucket_not_found, incarnation_mismatch, stream_not_found
from .transitions.snapshot import trimmed_off

TAIL = -2
BEGINNING = -1


class Contents:
    """All buckets and streams of one group, as of the log position `position`."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.position = 0
        self.at = 0
        self.buckets: dict[str, Bucket] = {}
        self.bucket_names: SortedList[str] = SortedList()
        self.stream_count = 0
        self.blobs: dict[str, int] = {}  # how many streams show each
        self.graves = Graves()
        self.ingests: dict[tuple[str, str], Ingest] = {}  # the newest of each bucket and app
        self.gauge = Gauge()
        self.unparked: dict[Stream, str] = {}  # streams that were asked for, and the buckets they are in
        self.changes = Changes()
        self.segments = SegmentTable()
        self.stored = Stored()
        self.cut = 0  # the end of the last entry that was one
        self.parts: list[tuple[str, Journal]] = []  # of all journals, those begun after the cut
        self.sealed_parts: list[tuple[int, list[tuple[str, Journal]]]] = []

    def find(self, bucket: str, name: str) -> Stream | None:
        """The stream at a name, also one that is out of sight."""
        found = self.buckets.get(bucket)
        return None if found is None else found.find(name)

    def segment_at(self, position: int) -> StoredSegment | None:
        """The segment that holds a position of the log; None if it is not stored yet, or no longer."""
        ahead = self.stored.ahead
        if ahead is not None and ahead.first < position <= ahead.last:
            return ahead
        return self.segments.at(position)

    def segment_after(self, position: int) -> StoredSegment | None:
        """The first segment that may hold something after a position."""
        ahead = self.stored.ahead
        found = self.segments.after(position)
        return ahead if found is None and ahead is not None and ahead.last > position else found

    @property
    def stored_to(self) -> int:
        """Up to which position segments hold everything."""
        ahead = self.stored.ahead
        return self.stored.flushed if ahead is None else max(self.stored.flushed, ahead.last)

    def describe(self, bucket: str, name: str, incarnation: str | None = None) -> Description | Refused:
        """What a stream is now."""
        stream = self.visible(bucket, name, incarnation)
        if isinstance(stream, Refused):
            return stream
        return Description(
            stream.incarnation,
            stream.content_type,
            stream.tail,
            stream.closed,
            stream.ttl_seconds,
            stream.expires_at,
            stream.earliest,
            stream.snapshot,
            stream.attributes,
            stream.first_record if stream.is_json else None,
            stream.next_record if stream.is_json else None,
        )

    def describe_bucket(self, name: str) -> BucketDescription | Refused:
        """What a bucket is now."""
        bucket = self.buckets.get(name)
        if bucket is None:
            return bucket_not_found(name)
        return BucketDescription(bucket.name, len(bucket.names), bucket.created_at)

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""
        names = self.bucket_names.irange(after, inclusive=(False, True))
        return [
            BucketDescription(name, len(self.buckets[name].names), self.buckets[name].created_at)
            for name in islice(names, count)
        ]

    def list_streams(self, bucket: str, prefix: str, after: str, count: int) -> Listing | Refused:
        """The next streams of a bucket by name, of those whose names begin with the prefix."""
        found = self.buckets.get(bucket)
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
        self, bucket: str, after: int | None, until: int | None, bytes_max: int, with_parts: bool = False
    ) -> FeedPage | Refused | FeedNotHeld:
        """The rows of a bucket's journal after a position: see feed.py."""
        found = self.buckets.get(bucket)
        if found is None:
            return bucket_not_found(bucket)
        return read_feed(found, self.position, self.stored_to, after, until, bytes_max, with_parts)

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
    ) -> RecordPage | Refused | NotHeld:
        """Messages of a JSON stream by their ordinals: see records.py."""
        stream = self.visible(bucket, name, incarnation)
        if isinstance(stream, Refused):
            return stream
        return read_records(stream, record, tail_records, records_max, bytes_max, offset)

    def read(
        self, bucket: str, name: str, offset: int, bytes_max: int, whole: bool, incarnation: str | None = None
    ) -> Page | Refused | NotHeld:
        """About `bytes_max` bytes of a stream from an offset on (or BEGINNING, or TAIL).

        JSON messages are never cut; with `whole`, others are not cut either.
        """
        stream = self.visible(bucket, name, incarnation)
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
                return NotHeld(stream, offset)
            is_json = stream.is_json
            if is_json and not stream.is_boundary(offset):
                return Refused(
                    "invalid_offset", "the offset lies inside a JSON message", stream.incarnation, tail
                )
            next_offset = stream.read(offset, bytes_max, whole or is_json, chunks)
            if not all_held(stream, chunks):
                return NotHeld(stream, offset)
        return Page(
            stream.incarnation,
            stream.content_type,
            stream.media_type,
            chunks,  # type: ignore[arg-type]
            offset,
            next_offset,
            tail,
            stream.closed,
        )

    def visible(self, bucket: str, name: str, incarnation: str | None) -> Stream | Refused:
        """The stream at a name that clients may see, or why there is none."""
        found = self.buckets.get(bucket)
        if found is None:
            return bucket_not_found(bucket)
        stream = found.streams.get(name) or found.find(name)
        if stream is None or stream.gone:
            return stream_not_found(name, stream)
        if incarnation is not None and incarnation != stream.incarnation:
            return incarnation_mismatch(stream)
        return stream


def _listed(name: str, bucket: Bucket) -> Listed:
    """What a list tells of a stream; one that is parked stays so."""
    stream: Stream | StreamRow | None = bucket.streams.get(name)
    if stream is None:
        stream = read_row(bucket.parked[name])
    return Listed(
        name,
        stream.closed,
        stream.content_type,
        stream.tail,
        stream.created_at,
        stream.last_write_at,
    )
