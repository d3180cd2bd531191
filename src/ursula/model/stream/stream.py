"""A stream: the record that commands change and reads look at.

Its newest messages are in memory, from the offset `messages.start` on. Where older ones lie it tells by
positions of the log, never by files: `refs` has one (offset, position, record) for the first append after
each cut, and the table of segments leads on from there.
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
"""Beginnings of a stream that are closer to each other than this are remembered as one."""

TRIMMED_AT_ONCE = 4096
"""So many messages that were trimmed are let go of at once: to free very many takes long."""


class ProducerState(Struct, gc=False):
    """What a stream remembers of a producer: its last accepted request and where that ended."""

    epoch: int
    seq: int
    next_offset: int
    next_record: int


class Ref(NamedTuple):
    """Where a stretch of a stream begins: its offset, the log position of that append, its first ordinal."""

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
        self.fork_record = 0
        self.fork_count = 0
        self.hidden = False
        self.earliest = 0
        self.first_record = 0
        self.trimmed: tuple[int, int, int] | None = None
        self.snapshot: Snapshot | None = None
        self.attributes: bytes | None = None
        self.dirty_at = -1
        self.encoded: tuple[int, bytes] | None = None  # when it had changed last, and its row then
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

    def branch_from(self, parent: "Stream", offset: int, record: int) -> None:
        """Share the parent's bytes up to the offset, so many messages, and go on from there."""
        self.parent, self.fork_offset, self.fork_record = parent, offset, record
        parent.fork_count += 1
        self.tail = offset
        self.messages = Messages(offset)
        self.record_base = record
        self.earliest, self.first_record = parent.earliest, parent.first_record
        if parent.snapshot is not None and parent.snapshot.offset <= offset:
            self.snapshot = parent.snapshot

    def trim(self, offset: int, record: int, at: int) -> None:
        """Begin at the offset, with that ordinal. What forks still share is kept until they end."""
        if offset > self.earliest:
            self._note_trim(at)
            self.earliest, self.first_record = offset, record

    def drop_trimmed(self) -> bool:
        """Let go of some messages before the beginning, unless a fork shares them; whether none is left."""
        if self.fork_count == 0 and self.earliest > self.messages.start:
            self.record_base += self.messages.drop_before(self.earliest, TRIMMED_AT_ONCE)
            return self.messages.start >= self.earliest
        return True

    def _note_trim(self, at: int) -> None:
        """Remember since when it begins where it does, and an older beginning: see `beginning_before`."""
        if self.trimmed is None:
            self.trimmed = (at, 0, 0)
            return
        trimmed_at, older_at, older = self.trimmed
        if trimmed_at - older_at >= TRIM_MEMORY_SECONDS * MICROSECONDS:
            older_at, older = trimmed_at, self.earliest
        self.trimmed = (at, older_at, older)

    def beginning_before(self, horizon: int) -> int:
        """An offset at or before which it began at that time: what is below it was trimmed before."""
        if self.trimmed is None:
            return self.earliest
        trimmed_at, older_at, older = self.trimmed
        if trimmed_at < horizon:
            return self.earliest
        return older if older_at < horizon else 0

    def refer(self, position: int) -> None:
        """The next message is the first after a cut: note the position that leads to it."""
        if self.refs is None:
            self.refs = array("Q")
        self.refs.extend((self.tail, position, self.next_record))
        self.last_ref_position = position

    def keep_refs(self, numbers: list[int]) -> None:
        """Forget all refs but these: what they led to is found through the ones before them."""
        self.refs = array("Q", [part for number in numbers for part in self._ref(number)])

    def ref_at(self, offset: int) -> Ref | None:
        """Where the stretch begins that holds the byte at the offset."""
        if self.refs is None:
            return None
        offsets = self.refs[0::3]
        index = bisect_right(offsets, offset) - 1
        return self._ref(index) if index >= 0 else None

    def refs_from(self, offset: int, count_max: int) -> list[Ref]:
        """That one and some after it."""
        if self.refs is None:
            return []
        first = max(0, bisect_right(self.refs[0::3], offset) - 1)
        return [self._ref(index) for index in range(first, min(first + count_max, len(self.refs) // 3))]

    def ref_of_record(self, record: int) -> Ref | None:
        """The same for the message with this ordinal."""
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
        """Let go of the messages up to a cut, so many at once: the store has them. Whether all are gone."""
        end = self.end_at(position)
        if end > self.messages.start:
            self.record_base += self.messages.drop_before(end, count_max)
        return self.messages.start >= end

    @property
    def is_idle(self) -> bool:
        """Whether it is nothing but its row: no message in memory, no tie to another stream."""
        return not self.messages.payloads and self.parent is None and not self.fork_count and not self.hidden

    def owner_of(self, offset: int) -> tuple["Stream", int]:
        """The stream in the chain of forks that holds the byte at the offset, and how far it may be read."""
        stream, limit = self, self.tail
        while offset < stream.fork_offset and stream.parent is not None:
            limit = min(limit, stream.fork_offset)
            stream = stream.parent
        return stream, limit

    def holds(self, offset: int) -> bool:
        """Whether the messages from the offset on are in memory, or names of blobs."""
        if offset >= self.fork_offset:
            return offset >= self.messages.start
        for stream, limit in self._lineage(offset):
            # A source may have let go of what was trimmed while this fork was deleted.
            if offset < limit and offset < stream.messages.start:
                return False
            offset = max(offset, limit)
        return True

    def record_at(self, offset: int) -> int:
        """How many messages lie before the offset, which is in memory."""
        if offset == self.tail:
            return self.next_record
        owner, _ = self.owner_of(offset)
        return owner.record_base + owner.messages.count_before(offset)

    def holds_record(self, record: int) -> bool:
        """Whether the message with this ordinal is in memory, or the name of a blob."""
        owner = self.owner_of_record(record)
        return record >= owner.record_base

    def offset_of(self, record: int) -> int:
        """Where the message with this ordinal, which is in memory, begins; for the next one, the tail."""
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
        """The offset that lies `count` bytes (JSON: messages) further in the same append, or None."""
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
        """The streams that hold the bytes from the offset on, oldest first, each with where it hands over."""
        chain = [(self, self.tail)]
        stream = self
        while offset < stream.fork_offset and stream.parent is not None:
            chain.append((stream.parent, min(chain[-1][1], stream.fork_offset)))
            stream = stream.parent
        return reversed(chain)
