"""Sending server-sent events: one data event and one control event per page, in one write.

All subscribers of a stream share a fan-out, which encodes new messages once and hands the same bytes to every
subscriber at the same offset. A client that does not read is sent nothing more until it does, and then
continues from its own offset. A connection ends at an event boundary after a while, and the client resumes.
"""

import asyncio
import logging
import time
from typing import Any

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.outcomes import Refused
from ..errors import Problem
from ..exchange import Exchange
from ..store_problems import fetch_deferred
from ..syntax.tokens import cursor_at
from ..wire.headers import HeaderList
from ..wire.request import BodyChunk, Outgoing
from .connections import LiveRequest
from .events import Event, Found, FoundLater, Incomplete, PageEvents

HEARTBEAT = BodyChunk(b":\n\n")
TIMER_SECONDS = 0.005
"""How early the event loop's timers may fire: not worth setting another one for."""

REST_SECONDS = 2.0
"""How long the first bytes of a character are held back at the tail: its rest may come with the next append.
Bytes that never become a character, such as Latin-1, must not be held back forever."""

logger = logging.getLogger(__name__)


def subscribe(
    exchange: Exchange,
    group: GroupApi,
    events: PageEvents[Any],
    *,
    headers: HeaderList,
    offset: int,
    cursor: str | None,
) -> None:
    """Begin the response, and send events from the offset on."""
    fan_outs = exchange.services.fan_outs
    fan_out = fan_outs.get(events.key)
    if fan_out is None:
        fan_out = fan_outs[events.key] = FanOut(fan_outs, group, events)
    outgoing = exchange.reply_stream(200, headers)
    Subscriber(exchange, group, fan_out, outgoing=outgoing, offset=offset, cursor=cursor)


class FanOut:
    """The subscribers of one stream or feed."""

    def __init__(self, fan_outs: dict[str, "FanOut"], group: GroupApi, events: PageEvents[Any]) -> None:
        self._fan_outs = fan_outs
        self._group = group
        self.events = events
        self._subscribers: dict[Subscriber, None] = {}
        self._found: dict[tuple[int, str | None], Event] = {}
        self._is_waking = False

    def join(self, subscriber: "Subscriber") -> None:
        """Add a subscriber."""
        if not self._subscribers:
            self._group.watchers.add(self.events.watched, self._wake)
        self._subscribers[subscriber] = None

    def leave(self, subscriber: "Subscriber") -> None:
        """Remove a subscriber, and with the last one the fan-out."""
        self._subscribers.pop(subscriber, None)
        if not self._subscribers:
            self._group.watchers.remove(self.events.watched, self._wake)
            if self._fan_outs.get(self.events.key) is self:
                del self._fan_outs[self.events.key]

    def next_event(self, offset: int, cursor: str | None) -> Found | FoundLater:
        """The event after the offset; None if there is nothing yet."""
        event: Found | FoundLater = self._found.get((offset, cursor))
        if event is None:
            event = self.events.find(offset, cursor)
            if self._is_waking and isinstance(event, Event):
                self._found[offset, cursor] = event
        return event

    def _wake(self) -> None:
        """There is news. Nothing changes while this runs, so an event found for one subscriber serves all."""
        self._is_waking = True
        try:
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber.pump()
                except Exception as error:
                    subscriber.fail(error)
        finally:
            self._is_waking = False
            self._found.clear()


class Subscriber(LiveRequest):
    """One SSE connection."""

    kind = "sse"

    def __init__(
        self,
        exchange: Exchange,
        group: GroupApi,
        fan_out: FanOut,
        *,
        outgoing: Outgoing,
        offset: int,
        cursor: str | None,
    ) -> None:
        super().__init__(exchange, group, fan_out.events.watched)
        self._live, self._stats = exchange.services.live, exchange.services.stats
        self._outgoing = outgoing
        self._cursor = cursor
        self._offset = offset
        self._ends_at = time.monotonic() + exchange.services.reads.sse_cycle_seconds
        self._fetching: asyncio.Task[None] | None = None
        self._missed_wake_up = False
        self._rest_timer: asyncio.TimerHandle | None = None
        self._fan_out = fan_out
        self._fan_out.join(self)
        outgoing.when_drained(self.pump)
        control = fan_out.events.encode_up_to_date(offset, cursor_at(time.time(), cursor))
        if control is not None:
            self._send(BodyChunk(control))
        self.pump()
        if not self.is_over:
            self.on_timer()

    def pump(self) -> None:
        """Send new events as long as the client reads. An event that is being fetched holds up later ones."""
        if self._fetching is not None:
            self._missed_wake_up = True
            return
        while not self.is_over and not self._outgoing.is_full:
            if not self._take(self._fan_out.next_event(self._offset, self._cursor)):
                return

    def _take(self, found: Found | FoundLater) -> bool:
        """Send an event, or do what else there is to do. Returns whether more may be sent at once."""
        if isinstance(found, Event):
            return self._send_event(found)
        if isinstance(found, Deferred):
            self._missed_wake_up = False
            self._fetching = self.exchange.spawn(self._fetch(found))
        elif isinstance(found, Incomplete):
            if self._rest_timer is None:
                loop = asyncio.get_running_loop()
                self._rest_timer = loop.call_later(REST_SECONDS, self._stop_holding_back, self._offset)
        elif isinstance(found, Refused):
            self.stop()
        return False

    async def _fetch(self, deferred: FoundLater) -> None:
        """Wait for an event from the store, then continue after it."""
        try:
            event = await fetch_deferred(deferred)
        except Exception as error:
            self._fetching = None
            self.stop()
            if not isinstance(error, Problem):
                raise
            logger.warning("GET %s ends at %d: %s", self.exchange.request.path, self._offset, error.message)
            return
        self._fetching = None
        if self._take(event) or self._missed_wake_up:
            self.pump()

    def _send_event(self, event: Event) -> bool:
        """Send an event. Returns whether more may follow."""
        self._offset = event.next_offset
        self._send(event.chunk)
        if event.is_last or self._live.is_stopping:
            self.stop()
        return not event.is_at_tail

    def _stop_holding_back(self, offset: int) -> None:
        """The rest of a character has not arrived in time: send the bytes without it."""
        self._rest_timer = None
        if offset != self._offset or self._fetching is not None:
            self.pump()  # it did arrive, perhaps with the beginning of another one
            return
        if self._take(self._fan_out.events.find(offset, self._cursor, is_final=True)):
            self.pump()

    def on_timer(self) -> None:
        """Send a heartbeat, or end the response when its time is up."""
        left = self._ends_at - time.monotonic()
        if left <= TIMER_SECONDS or self.exchange.services.live.is_stopping:
            self.stop()
            return
        heartbeat = self.exchange.services.reads.sse_heartbeat_seconds
        if self._timer is not None and not self._outgoing.is_full:
            self._send(HEARTBEAT)
        self.set_timer(min(heartbeat, left))

    def fail(self, error: Exception) -> None:
        """There is a bug: end this connection, so that its client can resume and the others go on."""
        self.exchange.reply_error(error)
        self.stop()

    def on_shutdown(self) -> None:
        """The server is stopping. Every write was whole events, so this is an event boundary."""
        self.stop()

    def stop(self) -> None:
        """End the response."""
        if self.is_over:
            return
        self._fan_out.leave(self)
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        super().stop()
        self._outgoing.end()

    def _send(self, chunk: BodyChunk) -> None:
        self._stats.sse_bytes += chunk.size
        self._outgoing.write(chunk)
