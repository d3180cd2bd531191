"""Residency: which data of the store a group keeps in memory too.

Only `apply` changes what is decided; only this class changes what is in memory. `apply` notes the data that
a flush has stored or a trim has cut off. The engine drives the rest in small steps: a method that returns an
iterator evicts or parks a little for each item, so that the engine can serve requests in between.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from .journal import Journal
from .store_view.dirty_rows import Key, RowKind
from .stream.stream import Stream

if TYPE_CHECKING:
    from .state import State

DROPPED_AT_ONCE = 4096
"""How many messages are dropped in one step."""

MESSAGE_BYTES = 64
STREAM_BYTES = 640
"""About how much memory a message takes in addition to its payload, and a stream that is not parked."""


class Evictable(NamedTuple):
    """What the store has up to a cut: the keys of changed rows, and parts of journals by bucket."""

    cut: int
    keys: list[Key]
    parts: list[tuple[str, Journal]]


class Residency:
    """Evicts the messages of a group that are stored, and parks its idle streams."""

    def __init__(self, state: "State") -> None:
        self._state = state
        self._flushed: list[dict[Key, None]] = []
        self._flushed_parts: list[tuple[str, Journal]] = []
        self.trimmed: dict[tuple[str, str], None] = {}  # streams with trimmed messages in memory
        self.unparked: dict[Stream, str] = {}  # streams that were unparked, with their buckets

    # Noted by `apply`

    def note_flushed(self, keys: list[dict[Key, None]], parts: list[tuple[str, Journal]]) -> None:
        """Note rows and journals that the store has."""
        self._flushed += keys
        self._flushed_parts += parts

    def note_trimmed(self, bucket: str, name: str) -> None:
        """Note that a stream still has trimmed messages in memory."""
        self.trimmed[bucket, name] = None

    def forget(self, stream: Stream) -> None:
        """Forget a stream that is removed for good."""
        self.unparked.pop(stream, None)

    # Driven by the engine

    @property
    def has_evictable(self) -> bool:
        """Whether something was flushed or trimmed since the last call of `take_evictable`."""
        return bool(self._flushed or self._flushed_parts or self.trimmed)

    def take_evictable(self) -> Evictable:
        """What was flushed since the last call."""
        flushed, self._flushed = self._flushed, []
        parts, self._flushed_parts = self._flushed_parts, []
        return Evictable(self._state.stored_to, list(chain.from_iterable(flushed)), parts)

    def evict_trimmed(self) -> Iterator[None]:
        """Drop messages that were trimmed, some at a time."""
        while self.trimmed:
            (bucket, name), _ = self.trimmed.popitem()
            # Another stream may have taken the name between two steps.
            while (stream := self._resident(bucket, name)) is not None and not stream.drop_trimmed():
                yield

    def evict_journals(self, parts: list[tuple[str, Journal]]) -> Iterator[None]:
        """Drop parts of journals, oldest first, so that a feed never has a gap."""
        for bucket, part in parts:
            found = self._state.buckets.get(bucket)
            if found is not None:
                found.forget_part(part)
            else:
                self._state.gauge.count -= part.memory_bytes
            while not part.drain(DROPPED_AT_ONCE):
                yield

    def evict(self, keys: list[Key], cut: int) -> Iterator[None]:
        """Drop the messages up to a cut, and park streams that become idle. Empties the list of keys.

        Streams are freed one by one, since freeing a great many at once takes too long.
        """
        while keys:
            key = keys.pop()
            while not self._evict_some(*key, cut):
                yield
            yield

    def memory_of(self, key: Key, after: int, cut: int) -> int | None:
        """About how much memory the messages of a row between two cuts take; None if they must be evicted.

        A stream that was written to recently is likely to be written to again, and parking it each time costs
        more than the append. But a message in a blob must be evicted once it is in a segment, since the blob
        is then replaced and may be deleted.
        """
        kind, bucket, name = key
        stream = self._resident(bucket, name) if kind == RowKind.STREAM else None
        if stream is None:
            return None
        messages = stream.messages
        if messages.has_slices:
            return None
        stream.encoded = None  # it is not parked soon, so its row need not be kept
        if not messages.payloads:  # it was just created, and its first append is likely to follow
            return STREAM_BYTES
        if len(messages.payloads) == 1:  # the usual case where there are many streams
            return messages.end - messages.start + MESSAGE_BYTES + STREAM_BYTES
        begin = max(stream.end_at(after), messages.start)
        end = max(stream.end_at(cut), begin)
        count = messages.count_before(end) - messages.count_before(begin)
        return end - begin + count * MESSAGE_BYTES + STREAM_BYTES

    def park_unused(self) -> Iterator[None]:
        """Park streams again that were unparked for a read and have not changed since."""
        state = self._state
        for stream, bucket in list(self.unparked.items()):
            found = state.buckets.get(bucket)
            if found is not None and stream.dirty_at <= state.stored.flushed:
                found.park(stream)
            self.unparked.pop(stream, None)
            yield

    def _resident(self, bucket: str, name: str) -> Stream | None:
        found = self._state.buckets.get(bucket)
        return found.streams.get(name) if found is not None else None

    def _evict_some(self, kind: int, bucket: str, name: str, cut: int) -> bool:
        """Drop some messages of a row; return whether none are left to drop."""
        state = self._state
        if kind == RowKind.GRAVE:
            return state.deleted.drop_stored(bucket, name, cut, DROPPED_AT_ONCE)
        stream = self._resident(bucket, name) if kind == RowKind.STREAM else None
        if stream is not None:
            if not stream.drop_stored(cut, DROPPED_AT_ONCE):
                return False
            if stream.dirty_at <= state.stored_to:
                state.buckets[bucket].park(stream)
            else:
                stream.encoded = None  # it is not parked soon, so its row need not be kept
        return True
