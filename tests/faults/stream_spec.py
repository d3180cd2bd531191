"""What one stream is when requests come one at a time: the state that each call leads to, and its answer.

The contents of streams are shared: contents that begin in the same way share their beginning, and equal
contents are one object. So a state is compared and hashed without looking at messages.
"""

from typing import NamedTuple

from tests.faults.history import (
    Append,
    Appended,
    Call,
    Content,
    Create,
    Created,
    Delete,
    Deleted,
    Head,
    Producer,
    Read,
    Refused,
    Result,
    Tail,
)


class Messages:
    """The messages of a stream: the last one, and those before it. `last` is None for unseen bytes."""

    __slots__ = ("_longer", "before", "last", "tail")

    def __init__(self, before: "Messages | None" = None, last: bytes | None = None, tail: int = 0) -> None:
        self.before = before
        self.last = last
        self.tail = tail
        self._longer: dict[bytes | int, Messages] = {}

    def and_then(self, message: bytes) -> "Messages":
        """These messages and one more."""
        longer = self._longer.get(message)
        if longer is None:
            longer = self._longer[message] = Messages(self, message, self.tail + len(message))
        return longer

    def and_unseen(self, size: int) -> "Messages":
        """These messages and some bytes that no read has shown, in whatever messages they came."""
        if self.before is not None and self.last is None:
            return self.before.and_unseen(self.tail - self.before.tail + size)
        longer = self._longer.get(size)
        if longer is None:
            longer = self._longer[size] = Messages(self, None, self.tail + size)
        return longer

    def are(self, start: int, messages: tuple[bytes, ...]) -> bool:
        """Whether exactly these messages follow an offset."""
        rest: Messages | None = self
        for message in reversed(messages):
            if rest is None or rest.last != message:
                return False
            rest = rest.before
        return rest is not None and rest.tail == start


class Stored(NamedTuple):
    """The last append of a producer that was stored."""

    producer: Producer
    next_offset: int


class Stream(NamedTuple):
    """A stream that exists."""

    messages: Messages
    closed: bool = False
    closed_by: Producer | None = None
    producers: tuple[Stored, ...] = ()
    """One for each producer, in the order of their ids."""

    def last_of(self, producer: Producer) -> Stored | None:
        return next((stored for stored in self.producers if stored.producer.id == producer.id), None)


State = Stream | None
"""None: there is no stream."""

NOT_FOUND = Refused("stream_not_found")
EXISTS = Refused("stream_exists")
CLOSED = Refused("stream_closed")
EPOCH_STALE = Refused("producer_epoch_stale")
EPOCH_INVALID = Refused("producer_headers_invalid")
SEQ_CONFLICT = Refused("producer_seq_conflict")


def take(state: State, call: Call, empty: Messages, is_seen: bool = True) -> tuple[State, Result | None]:
    """The state after a call, and the answer; None for a read that finds the stream: see `shows`.

    A message that no read has shown is stored as unseen bytes if `is_seen` is false.
    """
    if isinstance(call, Create):
        if state is None:
            return Stream(empty), Created(new=True)
        return state, EXISTS if state.closed else Created(new=False)
    if state is None:
        return None, NOT_FOUND
    if isinstance(call, Delete):
        return None, Deleted()
    if isinstance(call, Append):
        return _append(state, call, is_seen)
    if isinstance(call, Head):
        return state, Tail(state.messages.tail, state.closed)
    return state, None


def shows(state: State, call: Read, result: Result) -> bool:
    """Whether a read of this state has this answer."""
    if state is None:
        return result == NOT_FOUND
    return (
        isinstance(result, Content)
        and state.closed == result.closed
        and state.messages.are(call.start, result.messages)
    )


def _append(stream: Stream, call: Append, is_seen: bool) -> tuple[Stream, Result]:
    tail = stream.messages.tail
    producer = call.producer
    if stream.closed:
        if producer is None and not call.message:
            return stream, Appended(tail)
        if producer is not None and producer == stream.closed_by:
            return stream, Appended(tail, duplicate=True)
        return stream, CLOSED
    known = None
    if producer is not None:
        known = stream.last_of(producer)
        refusal = _check(producer, known)
        if refusal is not None:
            return stream, refusal
        if known is not None and known.producer >= producer:
            is_last = producer.seq == known.producer.seq
            return stream, Appended(known.next_offset if is_last else tail, duplicate=True)
    messages = stream.messages
    if call.message:
        messages = messages.and_then(call.message) if is_seen else messages.and_unseen(len(call.message))
    producers = stream.producers
    if producer is not None:
        others = [stored for stored in producers if stored is not known]
        producers = tuple(sorted([*others, Stored(producer, messages.tail)]))
    closed_by = producer if call.close else None
    return Stream(messages, call.close, closed_by, producers), Appended(messages.tail)


def _check(producer: Producer, known: Stored | None) -> Refused | None:
    """Why an append of a producer is refused."""
    if known is None:
        return None if producer.seq == 0 else SEQ_CONFLICT
    if producer.epoch < known.producer.epoch:
        return EPOCH_STALE
    if producer.epoch > known.producer.epoch:
        return None if producer.seq == 0 else EPOCH_INVALID
    return None if producer.seq <= known.producer.seq + 1 else SEQ_CONFLICT
