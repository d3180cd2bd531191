"""Commands: every change to a group's state, as frozen values that are logged before they are applied.

Time, identity and randomness are fields of a command, never read while it is applied. Fields are
only ever added at the end, with a default; a command or a field that this version does not know
stops the replay (see entry.py), it is never skipped.
"""

from msgspec import Struct


class Command(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What every command has in common: it is encoded as an array that begins with its tag."""


class Producer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One request of an idempotent producer."""

    id: str
    epoch: int
    seq: int


class Version(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A state of a stream that a writer has seen: which stream, its tail, and whether it was closed."""

    incarnation: str
    tail: int
    closed: bool


class IfMatch(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A precondition: the stream is in one of these versions, or in any if `any_version` is set."""

    versions: tuple[Version, ...]
    any_version: bool = False


class ForkPoint(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where a fork leaves its source. No offset means the source's tail at that moment."""

    source: str
    offset: int | None = None
    sub_offset: int = 0


class ForkedAt(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What a fork point came to, found out before it was logged: the source's bytes may be in the store.

    It stays true as long as the source is the same incarnation, since streams are only ever appended to.
    """

    incarnation: str
    offset: int
    record: int


class Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Messages that were stored as a blob before they were logged: all bytes in a row, and their sizes.

    `checksums` are those of the blocks of the blob; commands of before there were any have none.
    """

    blob: str
    sizes: tuple[int, ...]
    made_at: int
    checksums: tuple[int, ...] = ()


class StoredSegment(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A segment in the store: the rows of the positions after `first` up to `last`, and how to read it."""

    first: int
    last: int
    key: str
    rows: int
    size: int
    payload_bytes: int
    footer_bytes: int
    footer_crc: int
    digest: str


class StoredState(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """State rows in the store: all of them (a base), or those that changed since the ones before."""

    key: str
    is_base: bool
    rows: int
    size: int
    digest: str


class IngestRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One append of a bulk write: its messages, or the code and the words of why it cannot be one.

    `assumed`: nobody said what its content type is, so it is that of the stream, or of one made for it.
    """

    stream: str
    messages: tuple[bytes, ...]
    content_type: str
    assumed: bool = False
    problem: tuple[str, str] | None = None


class CreateBucket(Command, tag=1, frozen=True):
    """Make an empty bucket."""

    bucket: str


class Create(Command, tag=2, frozen=True):
    """Make a stream, perhaps as a fork, perhaps with its first messages, perhaps closed at once."""

    bucket: str
    stream: str
    content_type: str | None
    messages: tuple[bytes, ...] = ()
    close: bool = False
    ttl_seconds: int | None = None
    expires_at: int | None = None
    make_bucket: bool = False
    fork: ForkPoint | None = None
    producer: Producer | None = None
    stream_seq: str | None = None
    if_match: IfMatch | None = None
    incarnation: str | None = None
    attributes: bytes | None = None
    forked_at: ForkedAt | None = None
    body: Body | None = None


class Append(Command, tag=3, frozen=True):
    """Add messages to a stream, close it, or both at once.

    In a batch, `counts` says how many messages each of its appends has; otherwise all are one append.
    """

    bucket: str
    stream: str
    messages: tuple[bytes, ...]
    media_type: str | None
    close: bool = False
    producer: Producer | None = None
    stream_seq: str | None = None
    if_match: IfMatch | None = None
    incarnation: str | None = None
    counts: tuple[int, ...] = ()
    record_match: int | None = None
    body: Body | None = None


class PlainAppend(Append, tag=3, frozen=True):
    """One message that is no JSON, without any condition, and known as such. In the log it is any append."""


class Delete(Command, tag=4, frozen=True):
    """Remove a stream; while forks still need it, only from sight."""

    bucket: str
    stream: str
    incarnation: str | None = None


class Expire(Command, tag=5, frozen=True):
    """End a stream whose deadline has passed; ignored if its incarnation or deadline has changed."""

    bucket: str
    stream: str
    incarnation: str
    deadline: int


class Renew(Command, tag=6, frozen=True):
    """A read at `seen_at` moved the sliding window of a stream."""

    bucket: str
    stream: str
    incarnation: str
    seen_at: int


class DeleteBucket(Command, tag=7, frozen=True):
    """Remove a bucket that has no streams."""

    bucket: str


class SetAttributes(Command, tag=8, frozen=True):
    """Replace the attributes of a stream by these, as canonical JSON."""

    bucket: str
    stream: str
    attributes: bytes
    incarnation: str | None = None


class PublishSnapshot(Command, tag=9, frozen=True):
    """Make a blob that is stored already the visible snapshot of a stream, and perhaps trim to it.

    `record` says that a message begins or ends at the offset, and how many lie before it (0 if they have no
    ordinals). It is found out before the command is logged, since the bytes there may be in the store.
    """

    bucket: str
    stream: str
    offset: int
    blob: str
    content_type: str
    size: int
    digest: str
    trim: bool = True
    incarnation: str | None = None
    record: int | None = None
    made_at: int | None = None


class Trim(Command, tag=10, frozen=True):
    """Drop what a stream has before the offset; its snapshot must reach that far. `record`: as above."""

    bucket: str
    stream: str
    offset: int
    incarnation: str | None = None
    record: int | None = None


class FlushBegin(Command, tag=11, frozen=True):
    """The end of this log entry is a cut: someone is about to store everything up to it."""

    flusher: int


class Flushed(Command, tag=12, frozen=True):
    """Everything after `start` up to `cut` is stored; ignored unless `start` is how far the store reached."""

    start: int
    cut: int
    segment: StoredSegment | None
    state: StoredState
    made_at: int


class Merge(Command, tag=13, frozen=True):
    """One segment holds what several neighbours held, or nothing of it is needed any more."""

    inputs: tuple[str, ...]
    output: StoredSegment | None
    made_at: int


class Collect(Command, tag=14, frozen=True):
    """What was replaced or ended before the horizon, and before that manifest, is about to be deleted."""

    horizon: int
    manifest: int


class Undelete(Command, tag=15, frozen=True):
    """Bring back a stream that was deleted or has expired, as it was."""

    bucket: str
    stream: str
    incarnation: str | None = None


class IngestBegin(Command, tag=16, frozen=True):
    """The rows of these staged objects, in their order, are about to be appended.

    For each app the first list of a version counts, and versions only ever grow.
    """

    bucket: str
    app: str
    version: int
    objects: tuple[str, ...]
    create_streams: bool
    content_type: str | None
    drop_refused: bool
    made_at: int


class IngestRows(Command, tag=17, frozen=True):
    """Append some rows of an object of a bulk write; ignored unless they are the next ones.

    It is alone in its log entry: each row counts there as a command of its own.
    """

    bucket: str
    app: str
    version: int
    object: int
    first: int
    rows: tuple[IngestRow, ...]
    is_end: bool


StreamCommand = Create | Append | Delete | Expire | Renew | SetAttributes | PublishSnapshot | Trim | Undelete
IngestCommand = IngestBegin | IngestRows
BucketCommand = StreamCommand | CreateBucket | DeleteBucket | IngestCommand
StoreCommand = FlushBegin | Flushed | Merge | Collect
AnyCommand = BucketCommand | StoreCommand
