"""What both producers are made of: the queue, the numbering, and what a failure does to them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from .delivery import Numbering, deliver, deliver_close, ends_producer
from .outbox import Batching, Outbox, Pending
from .results import Appended
from .steps import Steps, about
from .target import StreamTarget

FutureT = TypeVar("FutureT", "Future[Appended]", "asyncio.Future[Appended]")


class Producing(Generic[FutureT]):
    """One producer of one stream; whoever uses it from several threads holds a lock."""

    def __init__(self, target: StreamTarget, numbering: Numbering, batching: Batching) -> None:
        self.target = target
        self.numbering = numbering
        self.outbox: Outbox[FutureT] = Outbox(batching)
        self.stopping = False
        self.closed: Appended | None = None
        self._is_closing = False
        self._framing = batching.framing
        self._under_way: list[Pending[FutureT]] = []
        self._failure: Exception | None = None
        self._dead: Exception | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was queued has been dealt with."""
        return not self.outbox and not self._under_way and not self._is_closing

    @property
    def may_queue(self) -> bool:
        """Whether a sender need not wait: there is room, or there never will be."""
        return not self.outbox.is_full or self.stopping or self._dead is not None

    def check(self) -> None:
        """Raise why nothing can be sent any more, if so."""
        self.check_alive()
        if self.stopping:
            raise RuntimeError("the producer is closed")

    def check_alive(self) -> None:
        """Raise the failure that the producer ended in, if it did."""
        if self._dead is not None:
            raise self._dead

    def take(self, starts: Callable[[FutureT], bool], now: float) -> list[Pending[FutureT]]:
        """The next batch to send."""
        self._under_way = self.outbox.take(starts, now)
        return self._under_way

    def delivery(self, batch: list[Pending[FutureT]]) -> Steps[Appended]:
        """The sending of a batch."""
        payloads = [one.payload for one in batch]
        return about(self.target.path, deliver(self.target, self.numbering, payloads, self._framing))

    def begin_closing(self, payload: bytes | None) -> Steps[Appended]:
        """The closing of the stream, for a producer that is idle; nothing can be sent after it."""
        if (failure := self.take_failure()) is not None:
            raise failure
        self.check_alive()
        self.stopping = self._is_closing = True
        closing = deliver_close(self.target, self.numbering, payload, self._framing)
        return about(self.target.path, closing)

    def end_closing(self, appended: Appended | None, failure: Exception | None, has_message: bool) -> None:
        """The stream is closed, or not. Closing again is harmless, unless a message may be stored twice."""
        self._is_closing = False
        self.closed = appended
        if failure is not None and has_message and ends_producer(failure):
            self._dead = failure

    def stored(self, batch: list[Pending[FutureT]], appended: Appended) -> None:
        """The batch is stored."""
        self._under_way = []
        for pending in batch:
            if not pending.future.done():
                pending.future.set_result(appended)

    def failed(self, batch: list[Pending[FutureT]], failure: Exception) -> None:
        """The batch is not stored, or nobody knows: what was queued behind it fails too, in order."""
        self._under_way = []
        self._failure = self._failure or failure
        if ends_producer(failure):
            self._dead = failure
        for pending in (*batch, *self.outbox.take_all()):
            if not pending.future.done():
                pending.future.set_exception(failure)

    def take_failure(self) -> Exception | None:
        """The first failure since this was last asked."""
        failure, self._failure = self._failure, None
        return failure
