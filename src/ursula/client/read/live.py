"""Follow a stream or a feed live, across lost connections: the loop that tails and feeds share."""

import base64
import binascii
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from ..checks import check_number
from ..connection.retry import Attempts, Patience
from ..connection.steps import Answer, Flow, Request, call, open_answer, receive, sleep
from ..errors import InvalidAnswer, OutcomeUnknown, Retryable
from ..formats.event_stream import Control, EventReader, ServerEvent

T = TypeVar("T")

Live = Literal["sse", "long-poll"]

LONG_POLL_SECONDS = 20
SILENCE_SECONDS = 30.0
"""How long a live connection may be silent beyond the usual timeout: heartbeats come every 15 s."""
LEAST_SECONDS = 0.1
"""The minimum time that a request gets, even if less of the wait is left."""
OVERTIME_SECONDS = 1.0
"""How much longer than the wait a connection may last before a shorter one replaces it."""


class Wait:
    """How much longer to wait for the next message; without a timeout, forever."""

    def __init__(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if timeout is not None:
            check_number("timeout", timeout, 0)
        self._timeout = timeout
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Wait the full time again: a message has arrived."""
        self._ends_at = math.inf if self._timeout is None else self._clock() + self._timeout

    @property
    def seconds_left(self) -> float | None:
        """How much time is left; None if there is no timeout."""
        return None if self._timeout is None else max(self._ends_at - self._clock(), LEAST_SECONDS)

    def is_over(self, after: float = 0.0) -> bool:
        """Whether the time is up, or will be up after this many seconds."""
        return self._clock() + after >= self._ends_at

    def patience(self, usual: Patience) -> Patience:
        """The usual patience, but not more than the timeout: an unreachable server must not extend it."""
        if self._timeout is None:
            return usual
        give_up = usual.give_up_seconds
        return replace(
            usual, give_up_seconds=self._timeout if give_up is None else min(give_up, self._timeout)
        )


class LiveSource(Protocol[T]):
    """A stream or a feed, and how far it has been read."""

    @property
    def closed(self) -> bool:
        """Whether everything was read and nothing can follow."""

    def live_request(self, live: Live, limit: float | None) -> Request:
        """A request that waits for the data after the current offset, at most as long as the limit."""

    def take_answer(self, answer: Answer) -> Flow[T]:
        """Pass the content of a response to the caller, and move the offset."""

    def take_events(self, data: list[bytes], control: Control) -> Flow[T]:
        """Pass the content of data events to the caller, and move the offset."""


def follow_live(source: LiveSource[T], live: Live, patience: Patience, wait: Wait) -> Flow[T]:
    """Everything that arrives, until the source is closed or the wait is over.

    After a lost connection the next one continues from the last offset.
    """
    attempts = Attempts(patience)
    is_over = wait.is_over()
    while not source.closed and not is_over:
        limit = wait.seconds_left
        try:
            if live == "sse":
                yield from _follow_events(source, wait, limit, attempts)
            else:
                answer = yield from call(source.live_request("long-poll", limit))
                yield from source.take_answer(answer)
                attempts.succeeded()
        except (Retryable, OutcomeUnknown) as failure:
            if limit is None or failure.code != "timed_out":
                delay = attempts.delay_after(failure)
                if wait.is_over(delay):
                    raise
                yield from sleep(delay)
                continue
            # The server was silent for as long as the caller wanted to wait, which is not a failure.
        is_over = wait.is_over()


def _follow_events(source: LiveSource[T], wait: Wait, limit: float | None, attempts: Attempts) -> Flow[T]:
    """The events of one connection. The server ends it periodically, and expects the client to reconnect."""
    heard = False
    events = DataEvents((yield from open_answer(source.live_request("sse", limit))))
    while piece := (yield from receive()):
        for data, control in events.feed(piece):
            heard = True
            yield from source.take_events(data, control)
            attempts.succeeded()
        if source.closed or wait.is_over():
            return
        # A heartbeat is not a message and does not extend the wait, but it does extend the connection.
        left = wait.seconds_left
        if limit is not None and left is not None and limit - left > OVERTIME_SECONDS:
            return
    if not heard:
        raise Retryable("no_events", "the connection delivered no events")


class DataEvents:
    """Groups the data events of a response by the control event that gives the offset after them.

    Data whose control event was lost is dropped: the server sends it again from the old offset.
    """

    def __init__(self, answer: Answer) -> None:
        self._is_base64 = answer.headers.get("stream-sse-data-encoding") == "base64"
        self._events = EventReader()
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[tuple[list[bytes], Control]]:
        """The groups that this piece completes: the content of each data event, and the control event."""
        groups = []
        for event in self._events.feed(piece):
            if event.name == "data":
                self._data.append(self._content(event))
            elif event.name == "control":
                groups.append((self._data, Control.of(event)))
                self._data = []
        return groups

    def _content(self, event: ServerEvent) -> bytes:
        if not self._is_base64:
            return event.data.encode()
        try:
            return base64.b64decode(event.data)
        except binascii.Error as error:
            raise InvalidAnswer(f"a data event is not base64: {error}") from error
