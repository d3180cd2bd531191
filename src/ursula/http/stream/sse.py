"""Server-sent events: one data event and one control event per stretch of a stream, in one write.

All subscribers of a stream share a fan-out, which encodes what is new once and hands the same bytes
to everyone who is at the same offset. A client that does not read is sent nothing more until it has, and goes
on from where it is. A connection ends at an event boundary after a while, and the client resumes.
"""

import asyncio
import base64
import codecs
import logging
import re
import time
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.limits import READ_BYTES_DEFAULT
from ...model.outcomes import Page, RecordPage, Refused
from ...model.text.media_type import JSON, is_text
from ..errors import Problem
from ..exchange import Exchange
from ..observe.request_stats import STREAM_SSE
from ..syntax.query import ReadQuery, RecordQuery
from ..syntax.tokens import cursor_at, format_offset
from ..wire.headers import HeaderList
from ..wire.request import Outgoing
from .live import Waiting
from .long_poll import send_nothing
from .read import RECORD_EXTENSION, bytes_of, fetch, record_lines

HEARTBEAT = b":\n\n"
TIMER_SECONDS = 0.005
"""What the event loop's timers may come early by: too little to wait for."""

REST_SECONDS = 2.0
"""How long the first bytes of a character are held back at the tail: its rest may come with the next append.
Bytes that never become a character, such as Latin-1, must not be held back for ever."""

logger = logging.getLogger(__name__)

_LINE_END = re.compile(rb"\r\n|\r|\n")


def answer_sse(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """A read that goes on as events."""
    if exchange.request.is_gone:
        return
    exchange.label = STREAM_SSE
    if "last-event-id" in exchange.headers and page.closed and page.offset == page.tail:
        send_nothing(exchange, page, query)
        return
    headers = [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("stream-incarnation", exchange.incarnation(page.incarnation)),
    ]
    if query.records is not None:
        headers.append(RECORD_EXTENSION)
    elif not is_text(page.media_type):
        headers.append(("stream-sse-data-encoding", "base64"))
    events = StreamEvents(group, exchange, page.incarnation, query.records)
    subscribe(exchange, group, events, headers, page.offset, query.cursor)


class Event(NamedTuple):
    """Encoded events and where they lead."""

    encoded: bytes
    next_offset: int
    is_up_to_date: bool
    is_last: bool


class Incomplete(NamedTuple):
    """There is only the beginning of a character after an offset."""


Found = Event | Refused | Incomplete | None
"""What comes after an offset, or that the reader may not go on, or that there is nothing to be shown yet."""

FoundLater = Deferred[Event | Incomplete | None]


class Events(Protocol):
    """Something that can be followed. All who follow what has the same key share a fan-out."""

    key: str
    watched: str

    def find(self, offset: int, cursor: str | None, is_final: bool = False) -> Found | FoundLater:
        """What comes after the offset; None if there is nothing yet. `is_final`: nothing is held back."""
        ...

    def nothing_yet(self, offset: int, cursor: str) -> bytes | None:
        """What tells a reader at once that it has everything; None if `find` has something for it."""
        ...


def subscribe(
    exchange: Exchange,
    group: GroupApi,
    events: Events,
    headers: HeaderList,
    offset: int,
    cursor: str | None,
) -> None:
    """Begin the response and follow from the offset on."""
    fan_outs = exchange.services.fan_outs
    fan_out = fan_outs.get(events.key)
    if fan_out is None:
        fan_out = fan_outs[events.key] = FanOut(fan_outs, group, events)
    Subscriber(exchange, group, fan_out, exchange.reply_stream(200, headers), offset, cursor)


class StreamEvents:
    """A stream as events; with `records`, its messages as lines."""

    def __init__(
        self, group: GroupApi, exchange: Exchange, incarnation: str, records: RecordQuery | None
    ) -> None:
        self._group = group
        self._bucket, self._stream = exchange.target.bucket, exchange.target.stream
        self._bytes_max = min(READ_BYTES_DEFAULT, exchange.services.reads.sse_bytes)
        self._records = records
        self._encoded: tuple[tuple[int, int, int, bool, str], Event] | None = None
        self.watched = incarnation
        self.key = incarnation if records is None else f"{incarnation} {records[2:]}"

    def find(self, offset: int, cursor: str | None, is_final: bool = False) -> Found | FoundLater:
        """What comes after the offset; None if there is nothing yet. `is_final`: nothing is held back."""
        page = self._page(offset)
        if isinstance(page, Deferred):
            return Deferred(partial(self._find_later, page, offset, cursor, is_final))
        return self._event(page, offset, cursor, is_final)

    async def _find_later(
        self, later: Deferred[Page], offset: int, cursor: str | None, is_final: bool
    ) -> Found:
        return self._event(await later.get(), offset, cursor, is_final)

    def _event(self, page: Page | Refused, offset: int, cursor: str | None, is_final: bool) -> Found:
        if isinstance(page, Refused):
            return page
        if page.next_offset == offset and not page.closed:
            return None
        key = (offset, page.next_offset, page.tail, page.closed, cursor_at(time.time(), cursor))
        if self._encoded is None or self._encoded[0] != key:
            envelopes = self._records is not None and self._records.as_envelopes
            event = encode_page(page, key[-1], envelopes, is_final)
            if event is None:
                return Incomplete()
            self._encoded = (key, event)
        return self._encoded[1]

    def nothing_yet(self, offset: int, cursor: str) -> bytes | None:
        """A control event for a reader at the tail of an open stream."""
        page = self._page(offset)
        if isinstance(page, Refused | Deferred) or page.next_offset != offset or page.closed:
            return None
        return encode_control(offset, cursor, True, False, page)

    def _page(self, offset: int) -> Page | Refused | Deferred[Page]:
        if self._records is None:
            return self._group.read(self._bucket, self._stream, offset, self._bytes_max, True, self.watched)
        return self._group.read_records(
            self._bucket,
            self._stream,
            None,
            None,
            self._records.count_max,
            self._bytes_max,
            self.watched,
            offset,
        )


class FanOut:
    """The subscribers of one stream or feed."""

    def __init__(self, fan_outs: dict[str, "FanOut"], group: GroupApi, events: Events) -> None:
        self._fan_outs = fan_outs
        self._group = group
        self.events = events
        self._subscribers: dict[Subscriber, None] = {}
        self._found: dict[tuple[int, str | None], Event] = {}
        self._waking = False

    def join(self, subscriber: "Subscriber") -> None:
        """Add a subscriber."""
        if not self._subscribers:
            self._group.watchers.add(self.events.watched, self._wake)
        self._subscribers[subscriber] = None

    def leave(self, subscriber: "Subscriber") -> None:
        """Remove a subscriber, and the fan-out with the last one."""
        self._subscribers.pop(subscriber, None)
        if not self._subscribers:
            self._group.watchers.remove(self.events.watched, self._wake)
            if self._fan_outs.get(self.events.key) is self:
                del self._fan_outs[self.events.key]

    def next_event(self, offset: int, cursor: str | None) -> Found | FoundLater:
        """What comes after the offset; None if there is nothing yet."""
        event: Found | FoundLater = self._found.get((offset, cursor))
        if event is None:
            event = self.events.find(offset, cursor)
            if self._waking and isinstance(event, Event):
                self._found[offset, cursor] = event
        return event

    def _wake(self) -> None:
        """Something is new. While this runs nothing changes: what is found for one is for all."""
        self._waking = True
        try:
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber.pump()
                except Exception as error:
                    subscriber.fail(error)
        finally:
            self._waking = False
            self._found.clear()


class Subscriber(Waiting):
    """One SSE connection."""

    kind = "sse"

    def __init__(
        self,
        exchange: Exchange,
        group: GroupApi,
        fan_out: FanOut,
        outgoing: Outgoing,
        offset: int,
        cursor: str | None,
    ) -> None:
        super().__init__(exchange, group, fan_out.events.watched)
        self._outgoing = outgoing
        self._cursor = cursor
        self._offset = offset
        self._ends_at = time.monotonic() + exchange.services.reads.sse_cycle_seconds
        self._fetching: asyncio.Task[None] | None = None
        self._missed = False
        self._held_back: asyncio.TimerHandle | None = None
        self._fan_out = fan_out
        self._fan_out.join(self)
        outgoing.when_room(self.pump)
        control = fan_out.events.nothing_yet(offset, cursor_at(time.time(), cursor))
        if control is not None:
            self._send(control)
        self.pump()
        if not self.over:
            self.tick()

    def pump(self) -> None:
        """Send what is new, as far as the client reads; what must be fetched holds up what comes after it."""
        if self._fetching is not None:
            self._missed = True
            return
        while not self.over and not self._outgoing.is_full:
            if not self._take(self._fan_out.next_event(self._offset, self._cursor)):
                return

    def _take(self, found: Found | FoundLater) -> bool:
        """Send what was found, or have it fetched; whether there may be more to send after it."""
        if not isinstance(found, Deferred):
            return self._pass_on(found)
        self._missed = False
        self._fetching = self.exchange.spawn(self._fetch(found))
        return False

    async def _fetch(self, later: FoundLater) -> None:
        """Wait for what lies in the store, and go on from there."""
        try:
            event = await fetch(later)
        except Exception as error:
            self._fetching = None
            self.stop()
            if not isinstance(error, Problem):
                raise
            logger.warning("GET %s ends at %d: %s", self.exchange.request.path, self._offset, error.message)
            return
        self._fetching = None
        if self._pass_on(event) or self._missed:
            self.pump()

    def _pass_on(self, event: Found) -> bool:
        """Send an event; whether there may be more after it."""
        if event is None:
            return False
        if isinstance(event, Incomplete):
            if self._held_back is None:
                loop = asyncio.get_running_loop()
                self._held_back = loop.call_later(REST_SECONDS, self._give_up_waiting, self._offset)
            return False
        if isinstance(event, Refused):
            self.stop()
            return False
        self._offset = event.next_offset
        self._send(event.encoded)
        if event.is_last or self.exchange.services.live.stopping:
            self.stop()
        return not event.is_up_to_date

    def _give_up_waiting(self, offset: int) -> None:
        """The rest of a character has not come: send what there is of it."""
        self._held_back = None
        if offset != self._offset or self._fetching is not None:
            self.pump()  # it did come, and perhaps the beginning of another one
            return
        if self._take(self._fan_out.events.find(offset, self._cursor, is_final=True)):
            self.pump()

    def tick(self) -> None:
        """Show that the connection lives, or end it when its time has come."""
        left = self._ends_at - time.monotonic()
        if left <= TIMER_SECONDS or self.exchange.services.live.stopping:
            self.stop()
            return
        heartbeat = self.exchange.services.reads.sse_heartbeat_seconds
        if self._timer is not None and not self._outgoing.is_full:
            self._send(HEARTBEAT)
        self.wake_in(min(heartbeat, left))

    def fail(self, error: Exception) -> None:
        """Something is wrong with us: the client may go on elsewhere, and the others here."""
        self.exchange.reply_error(error)
        self.stop()

    def end(self) -> None:
        """The server stops: every write was whole events, so this is a boundary."""
        self.stop()

    def stop(self) -> None:
        """End the response."""
        if self.over:
            return
        self._fan_out.leave(self)
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
        if self._held_back is not None:
            self._held_back.cancel()
            self._held_back = None
        super().stop()
        self._outgoing.end()

    def _send(self, data: bytes) -> None:
        self.exchange.services.stats.sse_bytes += len(data)
        self._outgoing.write(data)


def encode_page(page: Page, cursor: str, as_envelopes: bool = False, is_final: bool = False) -> Event | None:
    """The events for a stretch of a stream; None if it has only the beginning of a character.

    Such a beginning at the end of the stretch is left for the next event, unless it is final.
    """
    next_offset = page.next_offset
    at_tail = next_offset == page.tail
    encoded = b""
    if page.chunks:
        data = bytes_of(page)
        if isinstance(page, RecordPage):
            lines = record_lines(page.chunks, page.record, as_envelopes)
        elif page.media_type == JSON:
            lines = _LINE_END.split(data)
        elif is_text(page.media_type):
            text, shown = codecs.utf_8_decode(data, "replace", at_tail and (page.closed or is_final))
            if not text:
                return None
            next_offset -= len(data) - shown
            at_tail = next_offset == page.tail
            lines = _LINE_END.split(text.encode())
        else:
            lines = [base64.b64encode(data)]
        encoded = encode_data(lines)
    is_last = at_tail and page.closed
    control = encode_control(next_offset, cursor, at_tail, is_last, page)
    return Event(encoded + control, next_offset, at_tail, is_last)


def encode_data(lines: list[bytes]) -> bytes:
    """A data event of these lines."""
    return b"event: data\n" + b"".join(map(_data_line, lines)) + b"\n"


def encode_control(
    offset: int, cursor: str, up_to_date: bool, is_last: bool, page: Page | None = None
) -> bytes:
    """A control event. Its id lets a browser's EventSource resume where it was."""
    text = format_offset(offset)
    fields: dict[str, str | bool | int] = {"streamNextOffset": text}
    if not is_last:
        fields["streamCursor"] = cursor
    if up_to_date:
        fields["upToDate"] = True
    if is_last:
        fields["streamClosed"] = True
    if isinstance(page, RecordPage):
        fields["streamFirstRecord"] = page.first_record
        fields["streamNextRecord"] = page.record + len(page.chunks)
    return b"event: control\ndata:" + msgspec.json.encode(fields) + f"\nid: {text}\n\n".encode()


def _data_line(line: bytes) -> bytes:
    # A reader drops one space after the colon, so a line that begins with one needs another.
    return b"data: " + line + b"\n" if line.startswith(b" ") else b"data:" + line + b"\n"
