"""A stream and a bucket: the records that commands change and reads look at."""

from collections.abc import Iterator
from sys import intern

from msgspec import Struct
from sortedcontainers import SortedList

from .commands import ForkPoint
from .journal import Journal
from .media_type import JSON, media_type_of
from .messages import Messages
from .outcomes import Snapshot

MICROSECONDS = 1_000_000


class ProducerState(Struct, gc=False):
    """What a stream remembers of a producer: its last accepted request and where that ended."""

    epoch: int
    seq: int
    next_offset: int


class Stream:
    """One incarnation of a stream. `tail` is the offset after its last byte."""

    __slots__ = (
        "attributes",
        "closed",
        "closed_by",
        "content_type",
        "created_at",
        "deadline",
        "earliest",
        "expires_at",
        "fork",
        "fork_count",
        "fork_offset",
        "gone",
        "incarnation",
        "last_write_at",
        "media_type",
        "messages",
        "name",
        "parent",
        "producers",
        "record_base",
        "snapshot",
        "stream_seq",
        "tail",
        "ttl_seconds",
    )

    def __init__(self, name: str, incarnation: str, content_type: str, at: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.content_type = intern(content_type)  # few are different, and every stream has one
        self.media_type = media_type_of(content_type)
        self.created_at = at
        self.last_write_at = at
        self.ttl_seconds: int | None = None
        self.expires_at: int | None = None
        self.deadline: int | None = None
        self.tail = 0
        self.messages = Messages(0)
        self.record_base = 0
        self.closed = False
        self.closed_by: tuple[str, int, int] | None = None
        self.stream_seq: str | None = None
        self.producers: dict[str, ProducerState] | None = None
        self.fork: ForkPoint | None = None
        self.parent: Stream | None = None
        self.fork_offset = 0
        self.fork_count = 0
        self.gone = False
        self.earliest = 0
        self.snapshot: Snapshot | None = None
        self.attributes: bytes | None = None

    @property
    def is_json(self) -> bool:
        """Whether its messages are JSON values."""
        return self.media_type == JSON

    @property
    def next_record(self) -> int:
        """The ordinal of the next message."""
        return self.record_base + len(self.messages.payloads)

    def set_lifetime(self, ttl_seconds: int | None, expires_at: int | None, at: int) -> None:
        """Give it a sliding window or a fixed end."""
        self.ttl_seconds, self.expires_at = ttl_seconds, expires_at
        self.deadline = expires_at
        self.renew(at)

    def renew(self, at: int) -> None:
        """Move the sliding window, if it has one; never backwards."""
        self.deadline = self.deadline_after(at)

    def deadline_after(self, at: int) -> int | None:
        """The deadline that a renewal at this time would lead to."""
        if self.ttl_seconds is None:
            return self.deadline
        return max(self.deadline or 0, at + self.ttl_seconds * MICROSECONDS)

    def branch_from(self, parent: "Stream", offset: int) -> None:
        """Share the parent's bytes up to the offset and go on from there."""
        self.parent, self.fork_offset = parent, offset
        parent.fork_count += 1
        self.tail = offset
        self.messages = Messages(offset)
        self.record_base = parent.record_at(offset)
        self.earliest = parent.earliest
        if parent.snapshot is not None and parent.snapshot.offset <= offset:
            self.snapshot = parent.snapshot

    def trim(self, offset: int) -> None:
        """Begin at the offset from now on. What forks still share is kept until they end."""
        self.earliest = max(self.earliest, offset)
        if self.fork_count == 0 and self.earliest > self.messages.start:
            self.record_base += self.messages.drop_before(self.earliest)

    def owner_of(self, offset: int) -> tuple["Stream", int]:
        """The stream in the chain of forks that holds the byte at the offset, and how far it may be read."""
        stream, limit = self, self.tail
        while offset < stream.fork_offset and stream.parent is not None:
            limit = min(limit, stream.fork_offset)
            stream = stream.parent
        return stream, limit

    def record_at(self, offset: int) -> int:
        """How many messages lie before the offset."""
        owner, _ = self.owner_of(offset)
        return owner.record_base + owner.messages.count_before(offset)

    def offset_of(self, record: int) -> int:
        """Where the message with this ordinal begins; for the next one, the tail."""
        stream = self
        while record < stream.record_base and stream.parent is not None:
            stream = stream.parent
        index = record - stream.record_base
        return stream.messages.ends[index - 1] if index else stream.messages.start

    def is_boundary(self, offset: int) -> bool:
        """Whether a message begins or ends at the offset."""
        if offset == self.tail or offset == 0:
            return True
        owner, _ = self.owner_of(offset)
        return owner.messages.is_boundary(offset)

    def sub_offset(self, offset: int, count: int) -> int | None:
        """The offset that lies `count` bytes (JSON: messages) further in the same append, or None."""
        owner, limit = self.owner_of(offset)
        end = min(owner.messages.append_end_after(offset), limit)
        if not self.is_json:
            return offset + count if offset + count <= end else None
        ends = owner.messages.message_ends(offset, end)
        if count == 0:
            return offset
        return ends[count - 1] if count <= len(ends) else None

    def read(self, offset: int, bytes_max: int, whole: bool, into: list[bytes]) -> int:
        """Add about `bytes_max` bytes from the offset on to `into`, across forks; return where they end."""
        if offset >= self.fork_offset:
            return self.messages.read(offset, self.tail, bytes_max, whole, into)
        for stream, limit in self._lineage(offset):
            before = offset
            offset = stream.messages.read(offset, limit, bytes_max, whole, into)
            bytes_max -= offset - before
            if offset < limit or bytes_max <= 0:
                break
        return offset

    def _lineage(self, offset: int) -> Iterator[tuple["Stream", int]]:
        """The streams that hold the bytes from the offset on, oldest first, each with where it hands over."""
        chain = [(self, self.tail)]
        stream = self
        while offset < stream.fork_offset and stream.parent is not None:
            chain.append((stream.parent, min(chain[-1][1], stream.fork_offset)))
            stream = stream.parent
        return reversed(chain)


class Bucket:
    """A namespace of streams, with one order for all that happens in it."""

    __slots__ = ("created_at", "journal", "name", "names", "position", "streams")

    def __init__(self, name: str, position: int, at: int) -> None:
        self.name = name
        self.position = position
        self.created_at = at
        self.streams: dict[str, Stream] = {}
        self.names: SortedList[str] = SortedList()  # of the streams in sight; text order is byte order
        self.journal = Journal()
