"""Outcomes: the results of commands and reads. A refusal is an outcome like any other.

They are plain, encodable values, since a group may one day run in another process.
"""

from typing import Literal

from msgspec import Struct

from .commands import Producer

ErrorCode = Literal[
    "body_too_large",
    "bucket_exists",
    "bucket_not_empty",
    "bucket_not_found",
    "content_type_mismatch",
    "empty_body",
    "incarnation_mismatch",
    "ingest_outdated",
    "internal_error",
    "invalid_bucket_id",
    "invalid_json",
    "invalid_offset",
    "invalid_parameter",
    "invalid_stream_id",
    "offset_beyond_tail",
    "offset_trimmed",
    "position_trimmed",
    "precondition_failed",
    "producer_epoch_stale",
    "producer_headers_invalid",
    "producer_seq_conflict",
    "record_beyond_next",
    "record_trimmed",
    "snapshot_conflict",
    "stream_closed",
    "stream_exists",
    "stream_gone",
    "stream_not_found",
    "stream_seq_conflict",
    "unavailable",
    "write_backpressure",
]
"""Every code that a group refuses with, as a type: mypy finds a typo. `http/errors.py` has their statuses."""


class Outcome(Struct, gc=False):
    """The base of all outcomes. It has no fields."""


class Refused(Outcome):
    """Nothing was done. The code is part of the interface; the other fields are details for the client."""

    code: ErrorCode
    message: str
    incarnation: str | None = None
    tail: int | None = None
    closed: bool = False
    epoch: int | None = None
    expected_seq: int | None = None
    received_seq: int | None = None
    earliest: int | None = None


class BucketCreated(Outcome):
    """A new bucket."""

    bucket: str


class BucketDeleted(Outcome):
    """A bucket was deleted."""

    bucket: str


class Created(Outcome):
    """A stream exists as requested: `new` if this command created it."""

    new: bool
    incarnation: str
    content_type: str
    tail: int
    closed: bool
    deadline: int | None
    record_start: int | None = None
    record_next: int | None = None


class Appended(Outcome):
    """The messages are in the stream: this request added them, or (`duplicate`) an earlier attempt did."""

    incarnation: str
    tail: int
    next_offset: int
    closed: bool
    duplicate: bool = False
    epoch: int | None = None
    seq: int | None = None
    record_start: int | None = None
    record_next: int | None = None


class Ended(Outcome):
    """A stream was deleted or has expired."""

    incarnation: str


class AttributesSet(Outcome):
    """A stream has the requested attributes."""

    incarnation: str


class SnapshotPublished(Outcome):
    """The snapshot is visible: this request published it, or (`duplicate`) an earlier one like it did."""

    incarnation: str
    tail: int
    closed: bool
    offset: int
    digest: str
    duplicate: bool = False


class StreamTrimmed(Outcome):
    """A stream begins at the requested offset."""

    incarnation: str
    tail: int
    closed: bool
    earliest: int


class Undeleted(Outcome):
    """A deleted stream exists again as it was."""

    incarnation: str
    tail: int
    closed: bool
    deadline: int | None


class CutMade(Outcome):
    """The entry at this position ends at a cut."""

    position: int


class Done(Outcome):
    """The state now reflects what is in the store: up to this cut, or at this position."""

    position: int


class RefusedRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A row of a bulk write that its stream refused: its object, its number, and why."""

    object: int
    row: int
    stream: str
    code: str  # an ErrorCode when written; a later version may no longer have that code
    message: str


class Ingest(Outcome, array_like=True, forbid_unknown_fields=True):
    """The progress of a bulk write: `object` and `row` are the next ones. Stored in this form."""

    version: int
    objects: tuple[str, ...]
    create_streams: bool
    content_type: str | None
    drop_refused: bool
    object: int = 0
    row: int = 0
    appended: int = 0
    refused_count: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ended: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended because a row was refused."""
        return self.ended and self.refused_count > 0 and not self.drop_refused


class RowsIngested(Outcome):
    """Some rows of a bulk write were appended to these streams."""

    ingest: Ingest
    incarnations: list[str]


class Renewed(Outcome):
    """A stream's deadline was moved."""

    deadline: int


class Ignored(Outcome):
    """The command no longer applies: its target has changed."""


class Snapshot(Outcome):
    """The visible snapshot of a stream; its bytes are in the blob of that name."""

    offset: int
    blob: str
    content_type: str
    size: int
    digest: str


class Description(Outcome):
    """Everything about a stream except its bytes. Records are None if the messages have no ordinals."""

    incarnation: str
    content_type: str
    tail: int
    closed: bool
    ttl_seconds: int | None
    expires_at: int | None
    earliest: int
    snapshot: Snapshot | None
    attributes: bytes | None
    first_record: int | None
    next_record: int | None


class Page(Outcome):
    """A range of a stream: its messages or parts of them, and its offsets."""

    incarnation: str
    content_type: str
    media_type: str
    chunks: list[bytes]
    offset: int
    next_offset: int
    tail: int
    closed: bool


class RecordPage(Page):
    """A range of a JSON stream, read by record: the first record of the page, and those of the stream."""

    record: int
    first_record: int
    next_record: int


class Listed(Outcome):
    """A stream in the listing of its bucket."""

    name: str
    closed: bool
    content_type: str
    tail: int
    created_at: int
    last_write_at: int


class Listing(Outcome):
    """A page of a listing, and whether more pages follow."""

    streams: list[Listed]
    has_more: bool


class BucketDescription(Outcome):
    """Everything about a bucket except its streams."""

    name: str
    stream_count: int
    created_at: int


class FeedRow(Outcome):
    """One row of a bucket's journal: a message, or an event, whose fields are JSON."""

    index: int
    kind: str
    stream: str
    incarnation: str
    content_type: str
    media_type: str
    offset: int
    next_offset: int
    record: int | None
    payload: bytes | None
    producer: Producer | None
    event: bytes | None


class FeedEntry(Outcome):
    """The rows of one log entry."""

    position: int
    at: int
    rows: list[FeedRow]


class FeedPage(Outcome):
    """A range of a bucket's journal: whole log entries, and the position to continue from."""

    entries: list[FeedEntry]
    next_position: int
    tail: int


AnyOutcome = (
    Refused
    | BucketCreated
    | BucketDeleted
    | Created
    | Appended
    | Ended
    | AttributesSet
    | SnapshotPublished
    | StreamTrimmed
    | Renewed
    | Ignored
    | Undeleted
    | Ingest
    | RowsIngested
    | CutMade
    | Done
)
