"""Commands: every change to a group's state, as frozen values that are logged before they are applied.

Time, identity and randomness are fields of a command, never read while it is applied. Fields are
only ever added at the end, with a default. A command or a field that this version does not know
stops the replay (see entry.py); it is never skipped.
"""

from msgspec import Struct


class Command(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base of all commands. Each is encoded as an array that begins with its tag."""


class Producer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One request of an idempotent producer."""

    id: str
    epoch: int
    seq: int


class Version(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A state of a stream that a writer has seen: its incarnation, its tail, and whether it was closed."""

    incarnation: str
    tail: int
    closed: bool


class IfMatch(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A precondition: the stream is in one of these versions, or in any if `any_version` is set."""

    versions: tuple[Version, ...]
    any_version: bool = False


class ForkPoint(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Where a fork branches off its source. No offset means the tail of the source at that moment."""

    source: str
    offset: int | None = None
    sub_offset: int = 0


class ForkedAt(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A fork point as resolved before it was logged, since the source's bytes may be in the store.

    It stays true as long as the source is the same incarnation, since streams are only ever appended to.
    """

    incarnation: str
    offset: int
    record: int


class Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Messages that were stored as one blob, back to back, before they were logged; and their sizes.

    `checksums` has one per block of the blob; commands of early versions have none.
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
    """State rows in the store: all of them (a base), or those that changed since the last such object."""

    key: str
    is_base: bool
    rows: int
    size: int
    digest: str


class IngestRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One append of a bulk write: its messages, or the error code and message that say why there are none.

    `assumed`: the row has no content type of its own, so the stream's, or the default, was assumed.
    """

    stream: str
    messages: tuple[bytes, ...]
    content_type: str
    assumed: bool = False
    problem: tuple[str, str] | None = None


class CreateBucket(Command, tag=1, frozen=True):
    """Create an empty bucket."""

    bucket: str


class Create(Command, tag=2, frozen=True):
    """Create a stream, perhaps as a fork, with its first messages, or closed at once."""

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


class PlainAppend(Append, tag=18, frozen=True):
    """An append of one message that is not JSON, without any condition: it takes the fast path.

    It has a tag of its own since version 6, so that replay and replicas take the fast path too.
    """


class Delete(Command, tag=4, frozen=True):
    """Remove a stream; while forks still need it, it is only hidden."""

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
    """Move the deadline of a stream with a TTL, because it was read at `seen_at`."""

    bucket: str
    stream: str
    incarnation: str
    seen_at: int


class DeleteBucket(Command, tag=7, frozen=True):
    """Remove a bucket that has no streams."""

    bucket: str


class SetAttributes(Command, tag=8, frozen=True):
    """Replace the attributes of a stream with these, which are canonical JSON."""

    bucket: str
    stream: str
    attributes: bytes
    incarnation: str | None = None


class PublishSnapshot(Command, tag=9, frozen=True):
    """Make a blob that is already stored the visible snapshot of a stream; with `trim`, trim to it.

    `record` says that a message begins or ends at the offset, and how many messages precede it (0 if they
    have no ordinals). It is resolved before the command is logged, since those bytes may be in the store.
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
    """Drop the messages before the offset, which a snapshot must cover. `record`: see `PublishSnapshot`."""

    bucket: str
    stream: str
    offset: int
    incarnation: str | None = None
    record: int | None = None


class FlushBegin(Command, tag=11, frozen=True):
    """Make the end of this log entry a cut: a flusher is about to store everything up to it."""

    flusher: int


class Flushed(Command, tag=12, frozen=True):
    """Everything after `start` up to `cut` is stored; ignored unless the store ended at `start`."""

    start: int
    cut: int
    segment: StoredSegment | None
    state: StoredState
    made_at: int


class Merge(Command, tag=13, frozen=True):
    """Replace neighbouring segments with one that has their rows, or with none if no row is still needed."""

    inputs: tuple[str, ...]
    output: StoredSegment | None
    made_at: int


class Collect(Command, tag=14, frozen=True):
    """Forget streams deleted before the horizon, and objects replaced before it and before a manifest."""

    horizon: int
    manifest: int


class Undelete(Command, tag=15, frozen=True):
    """Bring back a stream that was deleted or has expired, as it was."""

    bucket: str
    stream: str
    incarnation: str | None = None


class IngestBegin(Command, tag=16, frozen=True):
    """Begin a bulk write: append the rows of these staged objects, in their order.

    For each app, the first list of objects for a version wins, and versions only increase.
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

    It is the only command of its log entry, and each row counts as a command of its own.
    """

    bucket: str
    app: str
    version: int
    object: int
    first: int
    rows: tuple[IngestRow, ...]
    is_end: bool


class RequestFlush(Command, tag=19, frozen=True):
    """Ask the keeper for a flush of everything up to this command; a base has all rows of the state."""

    base: bool = False


StreamCommand = (
    Create
    | Append
    | PlainAppend
    | Delete
    | Expire
    | Renew
    | SetAttributes
    | PublishSnapshot
    | Trim
    | Undelete
)
IngestCommand = IngestBegin | IngestRows
BucketCommand = StreamCommand | CreateBucket | DeleteBucket | IngestCommand
StoreCommand = FlushBegin | Flushed | Merge | Collect | RequestFlush
AnyCommand = BucketCommand | StoreCommand
