"""The reads of a group: from the applied state, or deferred if the bytes are not in memory."""

from ...model.outcomes import BucketDescription, Description, FeedPage, Listing, Page, RecordPage, Refused
from ...model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ...model.state import State
from .bucket_plan import Plan, plan
from .cold_feed import FeedReads
from .cold_stream import ColdReads
from .deferred import Deferred


class GroupReads:
    """All reads of one group. Nothing here waits: a read that needs the store is returned as `Deferred`."""

    def __init__(self, state: State, cold: ColdReads | None = None, feed: FeedReads | None = None) -> None:
        self._state = state
        self._cold = cold
        self._feed = feed

    def read(
        self,
        bucket: str,
        name: str,
        offset: int,
        bytes_max: int,
        whole: bool = False,
        incarnation: str | None = None,
    ) -> Page | Refused | Deferred[Page]:
        """A range of a stream."""
        page = self._state.reads.read(bucket, name, offset, bytes_max, whole, incarnation)
        if type(page) is NotInMemory:
            return self._deferred_page(bucket, page, bytes_max, whole)
        return page  # type: ignore[return-value]

    def _deferred_page(
        self, bucket: str, missing: NotInMemory, bytes_max: int, whole: bool
    ) -> Deferred[Page]:
        cold = self._cold_or_raise()
        return Deferred(lambda: cold.read(bucket, missing.stream, missing.offset or 0, bytes_max, whole))

    def _cold_or_raise(self) -> ColdReads:
        if self._cold is None:
            raise RuntimeError("the state is stored, and there is no store")
        return self._cold

    def describe(self, bucket: str, name: str, incarnation: str | None = None) -> Description | Refused:
        """The description of a stream."""
        return self._state.reads.describe(bucket, name, incarnation)

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
    ) -> RecordPage | Refused | Deferred[RecordPage]:
        """Messages of a JSON stream by their ordinals."""
        page = self._state.reads.read_records(
            bucket, name, record, tail_records, records_max, bytes_max, incarnation, offset
        )
        if isinstance(page, NotInMemory):
            cold, (stream, start, first) = self._cold_or_raise(), page
            return Deferred(lambda: cold.read_records(bucket, stream, start, first, records_max, bytes_max))
        return page

    def read_feed(
        self, bucket: str, after: int | None, until: int | None, bytes_max: int
    ) -> FeedPage | Refused | Deferred[FeedPage]:
        """The rows of a bucket's feed after a position."""
        page = self._state.reads.read_feed(bucket, after, until, bytes_max)
        if isinstance(page, FeedNotInMemory):
            if self._feed is None:
                raise RuntimeError("the state is stored, and there is no store")
            feed, position = self._feed, page.after
            return Deferred(lambda: feed.read(bucket, position, until, bytes_max))
        return page

    def describe_bucket(self, bucket: str) -> BucketDescription | Refused:
        """The description of a bucket."""
        return self._state.reads.describe_bucket(bucket)

    def list_streams(self, bucket: str, prefix: str, after: str, count: int) -> Listing | Refused:
        """A page of a bucket's streams."""
        return self._state.reads.list_streams(bucket, prefix, after, count)

    def plan(self, bucket: str, after: int | None) -> Plan | Refused:
        """Where the history of a bucket is, after a position."""
        return plan(self._state, bucket, after)
