"""The core of both producers: the queue, the sequence numbers, and what a failure does to them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from ..connection.steps import Steps, with_error_path
from ..results import Appended
from ..target import StreamTarget
from .delivery import ProducerIdentity, deliver, deliver_close, ends_producer
from .outbox import Batching, Outbox, PendingMessage

FutureT = TypeVar("FutureT", "Future[Appended]", "asyncio.Future[Appended]")


class ProducerCore(Generic[FutureT]):
    """One producer of one stream. The caller must hold a lock if it uses several threads."""

    def __init__(self, target: StreamTarget, identity: ProducerIdentity, batching: Batching) -> None:
        self.target = target
        self.identity = identity
        self.outbox: Outbox[FutureT] = Outbox(batching)
        self.stopping = False
        self.closed: Appended | None = None
        self._is_closing = False
        self._framing = batching.framing
        self._in_flight: list[PendingMessage[FutureT]] = []
        self._failure: Exception | None = None
        self._ended_by: Exception | None = None

    @property
    def is_idle(self) -> bool:
        """Whether every queued message has been stored or has failed."""
        return not self.outbox and not self._in_flight and not self._is_closing

    @property
    def may_queue(self) -> bool:
        """Whether a caller need not wait: there is room, or there never will be."""
        return not self.outbox.is_full or self.stopping or self._ended_by is not None

    def check(self) -> None:
        """Raise an error if nothing more can be sent."""
        self.check_alive()
        if self.stopping:
            raise RuntimeError("the producer is closed")

    def check_alive(self) -> None:
        """Raise the failure that ended the producer, if any."""
        if self._ended_by is not None:
            raise self._ended_by

    def take(self, starts: Callable[[FutureT], bool], now: float) -> list[PendingMessage[FutureT]]:
        """The next batch to send."""
        self._in_flight = self.outbox.take(starts, now)
        return self._in_flight

    def delivery(self, batch: list[PendingMessage[FutureT]]) -> Steps[Appended]:
        """The operation that sends a batch."""
        payloads = [one.payload for one in batch]
        return with_error_path(self.target.path, deliver(self.target, self.identity, payloads, self._framing))

    def begin_closing(self, payload: bytes | None) -> Steps[Appended]:
        """The operation that closes the stream. The producer must be idle; nothing can be sent after this."""
        if (failure := self.take_failure()) is not None:
            raise failure
        self.check_alive()
        self.stopping = self._is_closing = True
        closing = deliver_close(self.target, self.identity, payload, self._framing)
        return with_error_path(self.target.path, closing)

    def end_closing(self, appended: Appended | None, failure: Exception | None, has_message: bool) -> None:
        """Record whether closing succeeded. A retry is allowed unless a message could be stored twice."""
        self._is_closing = False
        self.closed = appended
        if failure is not None and has_message and ends_producer(failure):
            self._ended_by = failure

    def stored(self, batch: list[PendingMessage[FutureT]], appended: Appended) -> None:
        """Complete the futures of a batch that is stored."""
        self._in_flight = []
        for pending in batch:
            if not pending.future.done():
                pending.future.set_result(appended)

    def failed(self, batch: list[PendingMessage[FutureT]], failure: Exception) -> None:
        """Fail a batch that may not be stored, and everything queued after it, to keep the order."""
        self._in_flight = []
        self._failure = self._failure or failure
        if ends_producer(failure):
            self._ended_by = failure
        for pending in (*batch, *self.outbox.take_all()):
            if not pending.future.done():
                pending.future.set_exception(failure)

    def take_failure(self) -> Exception | None:
        """Return the first failure since the last call, and forget it."""
        failure, self._failure = self._failure, None
        return failure
