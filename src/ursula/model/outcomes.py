"""Outcomes: what a command or a read came to. A refusal is an outcome like any other.

They are plain encodable values: a group may one day live in another process.
"""

from msgspec import Struct

from .commands import Producer


class Outcome(Struct, gc=False):
    """What every outcome has in common: nothing but being one."""


class Refused(Outcome):
    """Nothing was done. The code is part of the interface; the rest is what the client needs to know."""

    code: str
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
    """A bucket is no more."""

    bucket: str


class Created(Outcome):
    """A stream exists as asked: `new` if this command made it."""

    new: bool
    incarnation: str
    content_type: str
    tail: int
    closed: bool
    deadline: int | None
    record_start: int | None = None
    record_next: int | None = None


class Appended(Outcome):
    """The messages are in the stream: by this request, or (`duplicate`) by an earlier try of it."""

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
    """A stream has the attributes asked for."""

    incarnation: str


class SnapshotPublished(Outcome):
    """The snapshot is the visible one: by this request, or (`duplicate`) by an earlier one like it."""

    incarnation: str
    tail: int
    closed: bool
    offset: int
    digest: str
    duplicate: bool = False


class StreamTrimmed(Outcome):
    """A stream begins where it was asked to."""

    incarnation: str
    tail: int
    closed: bool
    earliest: int


class Undeleted(Outcome):
    """A stream is back as it was."""

    incarnation: str
    tail: int
    closed: bool
    deadline: int | None


class CutMade(Outcome):
    """The entry at this position ends at a cut."""

    position: int


class Done(Outcome):
    """What the store has was taken note of: up to this cut, or at this position."""

    position: int


class RefusedRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A row of a bulk write that no stream took: of which object, which row, and why."""

    object: int
    row: int
    stream: str
    code: str
    message: str


class Ingest(Outcome, array_like=True, forbid_unknown_fields=True):
    """How far a bulk write has come: `object` and `row` are the next. It is kept as it is here."""

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
        """Whether it ended at a row that was refused."""
        return self.ended and self.refused_count > 0 and not self.drop_refused


class RowsIngested(Outcome):
    """Some rows of a bulk write are in these streams."""

    ingest: Ingest
    incarnations: list[str]


class Renewed(Outcome):
    """A stream's window was moved."""

    deadline: int


class Ignored(Outcome):
    """The command no longer applied: what it was about has changed."""


class Snapshot(Outcome):
    """The visible snapshot of a stream; its bytes are the blob of that name."""

    offset: int
    blob: str
    content_type: str
    size: int
    digest: str


class Description(Outcome):
    """What is known of a stream beside its bytes. Ordinals are None where messages have none."""

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
    """A stretch of a stream: its messages or parts of them, and where it lies."""

    incarnation: str
    content_type: str
    media_type: str
    chunks: list[bytes]
    offset: int
    next_offset: int
    tail: int
    closed: bool


class RecordPage(Page):
    """A stretch of a JSON stream asked for by ordinals: that of its first message, and the stream's."""

    record: int
    first_record: int
    next_record: int


class Listed(Outcome):
    """A stream in the list of its bucket."""

    name: str
    closed: bool
    content_type: str
    tail: int
    created_at: int
    last_write_at: int


class Listing(Outcome):
    """A page of such a list, and whether there are more."""

    streams: list[Listed]
    has_more: bool


class BucketDescription(Outcome):
    """What is known of a bucket."""

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
    """A stretch of a bucket's journal: whole log entries, and where it goes on."""

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
