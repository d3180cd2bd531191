"""Follow a stream: what is there, then what comes, over every lost connection, until it is closed."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

from .errors import OutcomeUnknown, Retryable
from .reads import read_chunk
from .results import BEGINNING, Chunk, Message, is_json, media_type, messages
from .retry import Attempts
from .sse import EventReader
from .steps import Answer, Flow, Item, Request, call, open_answer, receive, sleep
from .target import StreamTarget

Live = Literal["sse", "long-poll"]

LONG_POLL_SECONDS = 20
SILENCE_SECONDS = 30.0
"""How long a live connection may be silent beyond the usual timeout: heartbeats come every 15 s."""


@dataclass
class Place:
    """Where a reader is, in which stream."""

    offset: str
    decode: bool
    content_type: str = ""
    incarnation: str = ""
    cursor: str | None = None

    def moved(self, chunk: Chunk) -> None:
        """Go on behind a chunk."""
        self.offset = chunk.next_offset
        self.incarnation = chunk.incarnation or self.incarnation
        self.cursor = chunk.cursor or self.cursor


def tail(
    target: StreamTarget, offset: str = BEGINNING, *, live: Live | None = None, decode: bool = True
) -> Flow[Message]:
    """Every message from an offset on, as it comes, until the stream is closed.

    A lost connection is made again from the last offset. Without `live`, events are used where they carry
    every byte as it is: for `text/*` they would lose carriage returns, so these are polled. Without `decode`,
    JSON values are given as the text that was appended.
    """
    place = Place(offset, decode)
    while True:
        chunk = yield from read_chunk(target, place.offset, None, place.incarnation, target.live_patience)
        place.content_type = chunk.content_type
        place.moved(chunk)
        yield from _give(chunk.data, place)
        if chunk.closed:
            return
        if chunk.up_to_date:
            break
    if live is None:
        live = "long-poll" if media_type(place.content_type).startswith("text/") else "sse"
    if live == "sse":
        yield from _follow_events(target, place)
    else:
        yield from _poll(target, place)


def _give(data: bytes, place: Place) -> Flow[Message]:
    for message in messages(data, is_json(place.content_type), place.offset, place.decode):
        yield Item(message)


def _poll(target: StreamTarget, place: Place) -> Flow[Message]:
    attempts = Attempts(target.live_patience)
    while True:
        try:
            answer = yield from call(live_request(target, place, "long-poll"))
        except (Retryable, OutcomeUnknown) as failure:
            yield from sleep(attempts.delay_after(failure))
            continue
        attempts.succeeded()
        chunk = Chunk.of(answer, place.offset)
        place.moved(chunk)
        yield from _give(chunk.data, place)
        if chunk.closed:
            return


def _follow_events(target: StreamTarget, place: Place) -> Flow[Message]:
    attempts = Attempts(target.live_patience)
    while True:
        heard = False
        try:
            answer = yield from open_answer(live_request(target, place, "sse"))
            events = Stretches(answer)
            while piece := (yield from receive()):
                for data, control in events.feed(piece):
                    heard = True
                    attempts.succeeded()
                    place.offset = control["streamNextOffset"]
                    place.cursor = control.get("streamCursor", place.cursor)
                    yield from _give(data, place)
                    if control.get("streamClosed"):
                        return
            if heard:
                continue  # the server ends a connection now and then, and expects us again
            failure: Retryable | OutcomeUnknown = Retryable("no_events", "the connection brought no events")
        except (Retryable, OutcomeUnknown) as lost:
            failure = lost
        yield from sleep(attempts.delay_after(failure))


def live_request(target: StreamTarget, place: Place, live: Live) -> Request:
    """A request that waits for what comes after a place."""
    params = {"offset": place.offset, "live": live}
    if place.cursor is not None:
        params["cursor"] = place.cursor
    if live == "long-poll":
        params["timeout"] = str(LONG_POLL_SECONDS)
    headers = {"stream-incarnation": place.incarnation} if place.incarnation else {}
    path = target.address.path
    return Request("GET", path, params, headers, repeatable=True, wait_seconds=SILENCE_SECONDS)


class Stretches:
    """Pairs the data events of an answer with the control events that say where they lead.

    Data whose control event was lost is dropped: it will come again from the old offset.
    """

    def __init__(self, answer: Answer) -> None:
        self._is_base64 = answer.headers.get("stream-sse-data-encoding") == "base64"
        self._events = EventReader()
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[tuple[bytes, dict[str, Any]]]:
        """The stretches that this piece completes, each with its control fields."""
        whole = []
        for event in self._events.feed(piece):
            if event.name == "data":
                self._data.append(base64.b64decode(event.data) if self._is_base64 else event.data.encode())
            elif event.name == "control":
                whole.append((b"".join(self._data), event.fields()))
                self._data = []
        return whole
