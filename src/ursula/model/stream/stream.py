"""A stream: the object that commands change and reads look at.

Its newest messages are in memory, from the offset `messages.start` on. Older ones are found by positions of
the log, never by objects of the store: `refs` has one (offset, position, record) for the first append after
each cut, and the table of segments has the segment of that position.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from sys import intern
from typing import NamedTuple

from msgspec import Struct

from ..commands import ForkPoint
from ..outcomes import Snapshot
from ..text.media_type import JSON, media_type_of
from .messages import Messages, Payload

MICROSECONDS = 1_000_000

TRIM_MEMORY_SECONDS = 3600
"""Trims of a stream that are less than this apart are remembered as one."""

TRIMMED_AT_ONCE = 4096
"""How many trimmed messages are dropped at once, since freeing a great many takes too long."""


class ProducerState(Struct, gc=False):
    """The last accepted request of a producer, and where it ended."""

    epoch: int
    seq: int
    next_offset: int
    next_record: int


class Ref(NamedTuple):
    """The first append of a stream after a cut: its offset, its log position, and its first ordinal."""

    offset: int
    position: int
    record: int


class Stream:
    """One incarnation of a stream. `tail` is the offset after its last byte."""

    __slots__ = (
        "attributes",
        "closed",
        "closed_by",
        "content_type",
        "created_at",
        "deadline",
        "dirty_at",
        "earliest",
        "encoded",
        "expires_at",
        "first_record",
        "fork",
        "fork_count",
        "fork_offset",
        "fork_record",
        "hidden",
        "incarnation",
        "last_ref_position",
        "last_write_at",
        "media_type",
        "messages",
        "name",
        "parent",
        "producers",
        "record_base",
        "refs",
        "snapshot",
        "stream_seq",
        "tail",
        "trimmed",
        "ttl_seconds",
    )

    def __init__(self, name: str, incarnation: str, content_type: str, at: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.content_type = intern(content_type)  # every stream has one, but few are distinct
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
        self.fork_record = 0
        self.fork_count = 0
        self.hidden = False
        self.earliest = 0
        self.first_record = 0
        self.trimmed: tuple[int, int, int] | None = None
        self.snapshot: Snapshot | None = None
        self.attributes: bytes | None = None
        self.dirty_at = -1
        self.encoded: tuple[int, bytes] | None = None  # `dirty_at` at the time of encoding, and the row
        self.last_ref_position = -1
        self.refs: array[int] | None = None

    @property
    def is_json(self) -> bool:
        """Whether its messages are JSON values."""
        return self.media_type == JSON

    @property
    def next_record(self) -> int:
        """The ordinal of the next message."""
        return self.record_base + len(self.messages.payloads)

    def set_lifetime(self, ttl_seconds: int | None, expires_at: int | None, at: int) -> None:
        """Set a TTL or a fixed time of expiry."""
        self.ttl_seconds, self.expires_at = ttl_seconds, expires_at
        self.deadline = expires_at
        self.renew(at)

    def renew(self, at: int) -> None:
        """Move the deadline of a stream with a TTL; never backwards."""
        self.deadline = self.deadline_after(at)

    def deadline_after(self, at: int) -> int | None:
        """The deadline after a renewal at this time."""
        if self.ttl_seconds is None:
            return self.deadline
        return max(self.deadline or 0, at + self.ttl_seconds * MICROSECONDS)

    def branch_from(self, parent: "Stream", offset: int, record: int) -> None:
        """Share the parent's bytes up to the offset, where `record` messages end, and continue from there."""
        self.parent, self.fork_offset, self.fork_record = parent, offset, record
        parent.fork_count += 1
        self.tail = offset
        self.messages = Messages(offset)
        self.record_base = record
        self.earliest, self.first_record = parent.earliest, parent.first_record
        if parent.snapshot is not None and parent.snapshot.offset <= offset:
            self.snapshot = parent.snapshot

    def trim(self, offset: int, record: int, at: int) -> None:
        """Begin at the offset, with that ordinal. Messages that forks share are kept until the forks end."""
        if offset > self.earliest:
            self._note_trim(at)
            self.earliest, self.first_record = offset, record

    def drop_trimmed(self) -> bool:
        """Drop some trimmed messages, unless a fork shares them; return whether none are left to drop."""
        if self.fork_count == 0 and self.earliest > self.messages.start:
            self.record_base += self.messages.drop_before(self.earliest, TRIMMED_AT_ONCE)
            return self.messages.start >= self.earliest
        return True

    def _note_trim(self, at: int) -> None:
        """Remember when the stream was last trimmed, and an older beginning: see `beginning_before`."""
        if self.trimmed is None:
            self.trimmed = (at, 0, 0)
            return
        trimmed_at, older_at, older = self.trimmed
        if trimmed_at - older_at >= TRIM_MEMORY_SECONDS * MICROSECONDS:
            older_at, older = trimmed_at, self.earliest
        self.trimmed = (at, older_at, older)

    def beginning_before(self, horizon: int) -> int:
        """An offset at or before the beginning at that time: everything before it was trimmed earlier."""
        if self.trimmed is None:
            return self.earliest
        trimmed_at, older_at, older = self.trimmed
        if trimmed_at < horizon:
            return self.earliest
        return older if older_at < horizon else 0

    def refer(self, position: int) -> None:
        """Add a reference to the next message, which is the first after a cut."""
        if self.refs is None:
            self.refs = array("Q")
        self.refs.extend((self.tail, position, self.next_record))
        self.last_ref_position = position

    def keep_refs(self, numbers: list[int]) -> None:
        """Drop all other references: the messages of a dropped one are found through the one before it."""
        self.refs = array("Q", [field for number in numbers for field in self._ref(number)])

    def ref_at(self, offset: int) -> Ref | None:
        """The last reference at or before the offset; it leads to the segment with the byte there."""
        if self.refs is None:
            return None
        offsets = self.refs[0::3]
        index = bisect_right(offsets, offset) - 1
        return self._ref(index) if index >= 0 else None

    def refs_from(self, offset: int, count_max: int) -> list[Ref]:
        """That reference and some after it."""
        if self.refs is None:
            return []
        first = max(0, bisect_right(self.refs[0::3], offset) - 1)
        return [self._ref(index) for index in range(first, min(first + count_max, len(self.refs) // 3))]

    def ref_of_record(self, record: int) -> Ref | None:
        """The reference that leads to the message with this ordinal."""
        if self.refs is None:
            return None
        index = bisect_right(self.refs[2::3], record) - 1
        return self._ref(index) if index >= 0 else None

    def end_at(self, position: int) -> int:
        """Where the stream ended at a position of the log, which must be a cut."""
        if self.refs is None:
            return self.tail
        index = bisect_right(self.refs[1::3], position)
        return self.refs[3 * index] if 3 * index < len(self.refs) else self.tail

    def _ref(self, index: int) -> Ref:
        return Ref(*self.refs[3 * index : 3 * index + 3])  # type: ignore[index]

    def drop_stored(self, position: int, count_max: int | None = None) -> bool:
        """Drop up to `count_max` messages before a cut, which the store has; return whether none are left."""
        end = self.end_at(position)
        if end > self.messages.start:
            self.record_base += self.messages.drop_before(end, count_max)
        return self.messages.start >= end

    @property
    def is_idle(self) -> bool:
        """Whether its row describes it completely: no message in memory, no fork and no source."""
        return not self.messages.payloads and self.parent is None and not self.fork_count and not self.hidden

    def owner_of(self, offset: int) -> tuple["Stream", int]:
        """The stream in the chain of forks that has the byte at the offset, and up to where to read it."""
        stream, limit = self, self.tail
        while offset < stream.fork_offset and stream.parent is not None:
            limit = min(limit, stream.fork_offset)
            stream = stream.parent
        return stream, limit

    def holds(self, offset: int) -> bool:
        """Whether the messages from the offset on are in memory, as bytes or as slices of blobs."""
        if offset >= self.fork_offset:
            return offset >= self.messages.start
        for stream, limit in self._lineage(offset):
            # A source may have dropped trimmed messages while this fork was deleted.
            if offset < limit and offset < stream.messages.start:
                return False
            offset = max(offset, limit)
        return True

    def record_at(self, offset: int) -> int:
        """How many messages precede the offset, which is in memory."""
        if offset == self.tail:
            return self.next_record
        owner, _ = self.owner_of(offset)
        return owner.record_base + owner.messages.count_before(offset)

    def holds_record(self, record: int) -> bool:
        """Whether the message with this ordinal is in memory, as bytes or as a slice of a blob."""
        owner = self.owner_of_record(record)
        return record >= owner.record_base

    def offset_of(self, record: int) -> int:
        """Where the message with this ordinal, which is in memory, begins; for the next ordinal, the tail."""
        if record == self.next_record:
            return self.tail
        owner = self.owner_of_record(record)
        index = record - owner.record_base
        return owner.messages.ends[index - 1] if index else owner.messages.start

    def owner_of_record(self, record: int) -> "Stream":
        """The stream in the chain of forks that has the message with this ordinal."""
        stream = self
        while stream.parent is not None and record < stream.fork_record:
            stream = stream.parent
        return stream

    def is_boundary(self, offset: int) -> bool:
        """Whether a message begins or ends at the offset."""
        if offset == self.tail or offset == 0:
            return True
        owner, _ = self.owner_of(offset)
        return owner.messages.is_boundary(offset)

    def sub_offset(self, offset: int, count: int) -> int | None:
        """The offset that is `count` bytes (JSON: messages) further in the same append, or None."""
        owner, limit = self.owner_of(offset)
        end = min(owner.messages.append_end_after(offset), limit)
        if not self.is_json:
            return offset + count if offset + count <= end else None
        ends = owner.messages.message_ends(offset, end)
        if count == 0:
            return offset
        return ends[count - 1] if count <= len(ends) else None

    def read(self, offset: int, bytes_max: int, whole: bool, into: list[Payload]) -> int:
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
        """The streams with the bytes from the offset on, oldest first, each with where the next begins."""
        chain = [(self, self.tail)]
        stream = self
        while offset < stream.fork_offset and stream.parent is not None:
            chain.append((stream.parent, min(chain[-1][1], stream.fork_offset)))
            stream = stream.parent
        return reversed(chain)
