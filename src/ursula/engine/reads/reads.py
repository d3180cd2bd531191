"""The reads of a group: from the applied state, or later from the store where memory does not have it."""

from ...model.outcomes import BucketDescription, Description, FeedPage, Listing, Page, RecordPage, Refused
from ...model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ...model.state import State
from .bucket_plan import Plan, plan
from .cold_feed import FeedReads
from .cold_stream import ColdReads
from .deferred import Deferred


class GroupReads:
    """Everything that changes nothing. Nothing here waits: what takes longer is an answer for later."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._cold: ColdReads | None = None
        self._feed: FeedReads | None = None

    def connect(self, cold: ColdReads, feed: FeedReads) -> None:
        """Reach into the store by these from now on."""
        self._cold, self._feed = cold, feed

    def read(
        self,
        bucket: str,
        name: str,
        offset: int,
        bytes_max: int,
        whole: bool = False,
        incarnation: str | None = None,
    ) -> Page | Refused | Deferred[Page]:
        """A stretch of a stream, from the applied state."""
        page = self.state.reads.read(bucket, name, offset, bytes_max, whole, incarnation)
        if type(page) is NotInMemory:
            return self._later_page(bucket, page, bytes_max, whole)
        return page  # type: ignore[return-value]

    def _later_page(self, bucket: str, place: NotInMemory, bytes_max: int, whole: bool) -> Deferred[Page]:
        cold = self._reach()
        return Deferred(lambda: cold.read(bucket, place.stream, place.offset or 0, bytes_max, whole))

    def _reach(self) -> ColdReads:
        if self._cold is None:
            raise RuntimeError("the state is stored, and there is no store")
        return self._cold

    def describe(self, bucket: str, name: str, incarnation: str | None = None) -> Description | Refused:
        """What a stream is, from the applied state."""
        return self.state.reads.describe(bucket, name, incarnation)

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
        """Messages of a JSON stream by their ordinals, from the applied state."""
        page = self.state.reads.read_records(
            bucket, name, record, tail_records, records_max, bytes_max, incarnation, offset
        )
        if isinstance(page, NotInMemory):
            cold, (stream, start, first) = self._reach(), page
            return Deferred(lambda: cold.read_records(bucket, stream, start, first, records_max, bytes_max))
        return page

    def read_feed(
        self, bucket: str, after: int | None, until: int | None, bytes_max: int
    ) -> FeedPage | Refused | Deferred[FeedPage]:
        """What happened in a bucket after a position, from the applied state."""
        page = self.state.reads.read_feed(bucket, after, until, bytes_max)
        if isinstance(page, FeedNotInMemory):
            if self._feed is None:
                raise RuntimeError("the state is stored, and there is no store")
            feed, place = self._feed, page.after
            return Deferred(lambda: feed.read(bucket, place, until, bytes_max))
        return page

    def describe_bucket(self, bucket: str) -> BucketDescription | Refused:
        """What a bucket is, from the applied state."""
        return self.state.reads.describe_bucket(bucket)

    def list_streams(self, bucket: str, prefix: str, after: str, count: int) -> Listing | Refused:
        """A page of a bucket's streams, from the applied state."""
        return self.state.reads.list_streams(bucket, prefix, after, count)

    def plan(self, bucket: str, after: int | None) -> Plan | Refused:
        """Where the history of a bucket lies after a position, from the applied state."""
        return plan(self.state, bucket, after)
