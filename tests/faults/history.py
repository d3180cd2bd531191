"""What clients did to one stream and what they were answered: the operations of a history.

An operation takes effect at one moment between its invocation and its response, if its answers are
linearizable. Times are those of one monotonic clock. An append has a message that no other append has, unless
it is a retry by the same producer.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Producer(NamedTuple):
    """Which append of which run of a producer this is."""

    id: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create the stream, open and empty."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append a message, close the stream, or both. Without a message it only closes."""

    message: bytes = b""
    producer: Producer | None = None
    close: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the stream."""


@dataclass(frozen=True, slots=True)
class Head:
    """Request the tail."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read from an offset, at which a message begins or ends, up to the tail."""

    start: int = 0


Call = Create | Append | Delete | Head | Read


@dataclass(frozen=True, slots=True)
class Created:
    """The stream exists: 201 if it is new, 200 if it was there."""

    new: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """Stored, or stored earlier. Closing a closed stream again, without a producer, is no duplicate."""

    next_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """The stream existed and is deleted."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The answer to a HEAD."""

    offset: int
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """The answer to a read that reached the tail: everything after its start."""

    messages: tuple[bytes, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing was done."""

    code: str


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """It may take effect at any time after its invocation, even after the end of the history, or never.

    For HEAD and reads: there was no answer.
    """


@dataclass(frozen=True, slots=True)
class Unavailable:
    """It has no effect."""


Result = Created | Appended | Deleted | Tail | Content | Refused | OutcomeUnknown | Unavailable


@dataclass(frozen=True, slots=True)
class Operation:
    """A call by a client, with the times of its invocation and its response."""

    client: str
    invoked: float
    responded: float
    call: Call
    result: Result

    def __str__(self) -> str:
        call, result = self.call, self.result
        if isinstance(result, Content) and len(result.messages) > 4:
            count = len(result.messages)
            result_text = f"{count} messages, the last {result.messages[-3:]!r}, closed={result.closed}"
        else:
            result_text = str(result)
        return f"{self.client} [{self.invoked:.6f}, {self.responded:.6f}] {call} -> {result_text}"
