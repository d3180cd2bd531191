"""Follow a stream: what is there, then what comes, over every lost connection, until it is closed."""

import base64
import binascii
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from .errors import InvalidAnswer, OutcomeUnknown, Retryable
from .numbers import check_number
from .reads import read_chunk
from .results import Chunk, Message, is_json, media_type, messages
from .retry import Attempts, Patience
from .sse import Control, Event, EventReader
from .steps import Answer, Flow, Item, Request, call, open_answer, receive, sleep
from .target import StreamTarget

Live = Literal["sse", "long-poll"]

LONG_POLL_SECONDS = 20
SILENCE_SECONDS = 30.0
"""How long a live connection may be silent beyond the usual timeout: heartbeats come every 15 s."""
LEAST_SECONDS = 0.1
"""What a request is given even if less is left of the wait."""
OVERTIME_SECONDS = 1.0
"""How much longer than the wait a connection may last before a shorter one replaces it."""


@dataclass
class Place:
    """Where a reader is, in which stream."""

    offset: str
    decoding: bool
    content_type: str = ""
    incarnation: str = ""
    cursor: str | None = None
    up_to_date: bool = False
    closed: bool = False


class Tailing:
    """What a tail tells beside its messages."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def offset(self) -> str:
        """Where another tail can resume: after the messages that were given, at an offset of the server."""
        return self._place.offset

    @property
    def up_to_date(self) -> bool:
        """Whether everything that the stream held was given, as of the last answer."""
        return self._place.up_to_date

    @property
    def closed(self) -> bool:
        """Whether everything was given and the stream is closed, so that nothing can follow."""
        return self._place.closed


class Wait:
    """How long a tail may still wait for the next message; without a timeout, for ever."""

    def __init__(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if timeout is not None:
            check_number("timeout", timeout, 0)
        self._timeout = timeout
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """A message has come."""
        self._ends_at = math.inf if self._timeout is None else self._clock() + self._timeout

    @property
    def seconds_left(self) -> float | None:
        """How long is left; None if there is no end."""
        return None if self._timeout is None else max(self._ends_at - self._clock(), LEAST_SECONDS)

    def is_over(self, after: float = 0.0) -> bool:
        """Whether the time is up, or will be after so many seconds."""
        return self._clock() + after >= self._ends_at

    def patience(self, usual: Patience) -> Patience:
        """Not more than the timeout: a server that is away must not make it longer."""
        if self._timeout is None:
            return usual
        give_up = usual.give_up_seconds
        return replace(
            usual, give_up_seconds=self._timeout if give_up is None else min(give_up, self._timeout)
        )


def follow(target: StreamTarget, place: Place, live: Live | None, wait: Wait) -> Flow[Message]:
    """Every message from a place on, as it comes, until the stream is closed or the wait is over.

    A lost connection is made again from the last offset. Without `live`, events are used where they carry
    every byte as it is: for `text/*` they would lose carriage returns, so these are polled.
    """
    patience = wait.patience(target.live_patience)
    while not place.up_to_date:
        chunk = yield from read_chunk(target, place.offset, None, place.incarnation, patience)
        place.content_type = chunk.content_type
        yield from _give_chunk(chunk, place, wait)
    wait.restart()
    if live is None:
        live = "long-poll" if media_type(place.content_type).startswith("text/") else "sse"
    attempts = Attempts(patience)
    is_over = wait.is_over()
    while not place.closed and not is_over:
        limit = wait.seconds_left
        try:
            if live == "sse":
                yield from _follow_events(target, place, wait, limit, attempts)
            else:
                answer = yield from call(live_request(target, place, "long-poll", limit))
                attempts.succeeded()
                yield from _give_chunk(Chunk.of(answer, target.path), place, wait)
        except (Retryable, OutcomeUnknown) as failure:
            if limit is None or failure.code != "timed_out":
                delay = attempts.delay_after(failure)
                if wait.is_over(delay):
                    raise
                yield from sleep(delay)
                continue
            # The server was silent for as long as we wanted to wait, which is no failure.
        is_over = wait.is_over()


def _follow_events(
    target: StreamTarget, place: Place, wait: Wait, limit: float | None, attempts: Attempts
) -> Flow[Message]:
    """What one connection brings. The server ends it now and then, and expects us again."""
    heard = False
    events = Stretches((yield from open_answer(live_request(target, place, "sse", limit))))
    while piece := (yield from receive()):
        for data, control in events.feed(piece):
            heard = True
            attempts.succeeded()
            place.cursor = control.cursor or place.cursor
            yield from _give(data, control.next_offset, control.up_to_date, control.closed, place, wait)
        if place.closed or wait.is_over():
            return
        # What is no message, as a heartbeat, does not prolong the wait, but the connection would.
        left = wait.seconds_left
        if limit is not None and left is not None and limit - left > OVERTIME_SECONDS:
            return
    if not heard:
        raise Retryable("no_events", "the connection brought no events")


def _give_chunk(chunk: Chunk, place: Place, wait: Wait) -> Flow[Message]:
    place.incarnation = chunk.incarnation or place.incarnation
    place.cursor = chunk.cursor or place.cursor
    yield from _give(chunk.data, chunk.next_offset, chunk.up_to_date, chunk.closed, place, wait)


def _give(
    data: bytes, next_offset: str, up_to_date: bool, closed: bool, place: Place, wait: Wait
) -> Flow[Message]:
    """Hand out messages. Only with the last of them is the reader at the next place."""
    found = messages(data, is_json(place.content_type), next_offset, place.decoding)
    for message in found[:-1]:
        place.up_to_date = False
        yield Item(message)
    place.offset = next_offset
    place.closed = closed
    place.up_to_date = up_to_date or closed
    if found:
        yield Item(found[-1])
        wait.restart()


def live_request(target: StreamTarget, place: Place, live: Live, limit: float | None) -> Request:
    """A request that waits for what comes after a place, at most as long as the limit."""
    params = {"offset": place.offset, "live": live}
    if place.cursor is not None:
        params["cursor"] = place.cursor
    if live == "long-poll":
        seconds = LONG_POLL_SECONDS if limit is None else min(LONG_POLL_SECONDS, max(1, int(limit)))
        params["timeout"] = str(seconds)
    headers = {"stream-incarnation": place.incarnation} if place.incarnation else {}
    return Request(
        "GET",
        target.path,
        params,
        headers,
        repeatable=True,
        wait_seconds=SILENCE_SECONDS,
        longest_seconds=limit,
    )


class Stretches:
    """Pairs the data events of an answer with the control events that say where they lead.

    Data whose control event was lost is dropped: it will come again from the old offset.
    """

    def __init__(self, answer: Answer) -> None:
        self._is_base64 = answer.headers.get("stream-sse-data-encoding") == "base64"
        self._events = EventReader()
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[tuple[bytes, Control]]:
        """The stretches that this piece completes, each with its control event."""
        whole = []
        for event in self._events.feed(piece):
            if event.name == "data":
                self._data.append(self._content(event))
            elif event.name == "control":
                whole.append((b"".join(self._data), Control.of(event)))
                self._data = []
        return whole

    def _content(self, event: Event) -> bytes:
        if not self._is_base64:
            return event.data.encode()
        try:
            return base64.b64decode(event.data)
        except binascii.Error as error:
            raise InvalidAnswer(f"a data event is not base64: {error}") from error
