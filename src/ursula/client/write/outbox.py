"""The queue of a producer: messages in order, taken out in batches."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

from ..checks import check_count, check_number
from .delivery import Framing

FutureT = TypeVar("FutureT")


@dataclass(frozen=True)
class Batching:
    """How messages are batched: a batch is sent when it is full or its first message has lingered.

    One request is in flight at a time, so messages queued during it form a batch without lingering.
    """

    linger_seconds: float = 0.005
    batch_bytes: int = 1 << 20
    batch_messages: int = 512
    queue_bytes: int = 16 << 20
    framing: Framing | None = None

    def __post_init__(self) -> None:
        check_number("linger_seconds", self.linger_seconds, 0)
        check_count("batch_bytes", self.batch_bytes, 1)
        check_count("batch_messages", self.batch_messages, 1)
        check_count("queue_bytes", self.queue_bytes, 1)
        if self.framing not in (None, *get_args(Framing)):
            raise ValueError(f"framing must be None or 'length-prefixed', not {self.framing!r}")


@dataclass(frozen=True, slots=True)
class PendingMessage(Generic[FutureT]):
    """A queued message, and the future of its caller."""

    payload: bytes
    future: FutureT


class Outbox(Generic[FutureT]):
    """Messages that are waiting to be sent."""

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._pending: deque[PendingMessage[FutureT]] = deque()
        self._bytes = 0
        self._oldest_at = 0.0
        self.hurry = False

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether a caller should wait before adding more."""
        return self._bytes >= self._batching.queue_bytes

    def add(self, payload: bytes, future: FutureT, now: float) -> None:
        """Queue a message."""
        if not self._pending:
            self._oldest_at = now
        self._pending.append(PendingMessage(payload, future))
        self._bytes += len(payload)

    def due_in(self, now: float) -> float | None:
        """Seconds until the next batch is due; None if there is nothing to send."""
        batching = self._batching
        if not self._pending:
            return None
        if self.hurry or self._bytes >= batching.batch_bytes or len(self) >= batching.batch_messages:
            return 0.0
        return max(0.0, self._oldest_at + batching.linger_seconds - now)

    def take(self, starts: Callable[[FutureT], bool], now: float) -> list[PendingMessage[FutureT]]:
        """The next batch, without messages whose future was cancelled before it `starts`."""
        batch: list[PendingMessage[FutureT]] = []
        size = 0
        while self._pending and len(batch) < self._batching.batch_messages:
            payload = self._pending[0].payload
            if batch and size + len(payload) > self._batching.batch_bytes:
                break
            pending = self._pending.popleft()
            self._bytes -= len(payload)
            if starts(pending.future):
                size += len(payload)
                batch.append(pending)
        self._oldest_at = now
        return batch

    def take_all(self) -> list[PendingMessage[FutureT]]:
        """Every queued message, because none of them will be sent."""
        pending = list(self._pending)
        self._pending.clear()
        self._bytes = 0
        return pending
