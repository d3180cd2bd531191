"""The feed: everything that happens in a bucket, in one order, read like a stream of lines."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ...engine.group import Group
from ...engine.later import Later
from ...engine.watchers import bucket_key
from ...model.contents import BEGINNING, TAIL
from ...model.outcomes import FeedPage, Refused
from ..errors import Problem
from ..exchange import Exchange
from ..observe.request_stats import FEED, FEED_LONG_POLL, FEED_SSE
from ..stream.fetching import fetch
from ..stream.live import Waiting
from ..stream.read import NDJSON, settle_group
from ..stream.sse import Event, Found, FoundLater, encode_control, encode_data, subscribe
from ..syntax.query import Live, ReadQuery, parse_query, parse_read_query
from ..syntax.tokens import cursor_at, format_offset, parse_offset
from ..wire.headers import HeaderList
from .feed_lines import FeedLines

ARROW = "application/vnd.apache.arrow.stream"
EVENT_BYTES = 256 * 1024
"""About so much is encoded and sent to a follower at a time."""
ROWS_AT_ONCE_MAX = 1000
"""More rows than these are encoded in a thread, so that nobody else waits for them."""

_WITHOUT_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_encode = msgspec.json.Encoder().encode
_ROUTES = {Live.NO: FEED, Live.LONG_POLL: FEED_LONG_POLL, Live.SSE: FEED_SSE}


def get_feed(exchange: Exchange) -> None:
    """GET on a bucket with an offset."""
    exchange.route = FEED
    query = parse_read_query(exchange.request.query_string)
    resumed = exchange.headers.get("last-event-id")
    if query.live is Live.SSE and resumed is not None:
        query = query._replace(offset=parse_offset(resumed))
    if query.offset is None:
        raise Problem("invalid_offset", "a live read needs an offset")
    if query.records is not None:
        raise Problem("invalid_parameter", "a feed is read by position, not by record")
    until = parse_query(exchange.request.query_string).get("until")
    _read(exchange, query, None if until is None else _until(until, query))


def _until(text: str, query: ReadQuery) -> int:
    """The last position that is asked for."""
    until, offset = parse_offset(text), query.offset or 0
    if until < 0:
        raise Problem("invalid_parameter", "until must be a position")
    if query.live is not Live.NO or offset == TAIL:
        raise Problem("invalid_parameter", "until is for reads from a position on that do not wait")
    if offset > until:
        raise Problem("invalid_parameter", "until lies before the offset")
    return until


def _read(exchange: Exchange, query: ReadQuery, until: int | None) -> None:
    bucket = exchange.target.bucket
    group = exchange.app.node.group_of(bucket)
    if not settle_group(exchange, group, lambda exchange: _read(exchange, query, until)):
        return
    wanted = exchange.headers.get("stream-incarnation")
    if wanted is not None and wanted != exchange.app.node.feed_incarnation:
        message = "the feed is of another cluster, or of before a restore"
        raise Problem("incarnation_mismatch", message, [_incarnation(exchange)])
    for position in (query.offset, until):
        check_rewound(exchange, group, position)
    page = _find(group, bucket, query, until)
    if isinstance(page, Later):
        exchange.app.spawn(exchange, _answer_later(exchange, group, query, page))
    else:
        _answer(exchange, group, query, page)


def check_rewound(exchange: Exchange, group: Group, position: int | None) -> None:
    """Refuse a position that a restore went back behind: what was there has not happened."""
    if position is None or position < 0:
        return
    end = exchange.app.node.lineage.end_before(group.number, position)
    if end is not None:
        message = f"a restore went back to position {end}: read on from there, and undo what came after it"
        raise Problem("position_rewound", message, [_incarnation(exchange)], position=format_offset(end))


async def _answer_later(exchange: Exchange, group: Group, query: ReadQuery, later: Later[FeedPage]) -> None:
    _answer(exchange, group, query, await fetch(later))


def _answer(exchange: Exchange, group: Group, query: ReadQuery, page: FeedPage | Refused) -> None:
    if isinstance(page, Refused):
        exchange.refused(page)
        return
    if exchange.request.is_gone:
        return
    exchange.route = _ROUTES[query.live]
    if query.live is Live.SSE:
        _follow(exchange, group, query, page)
    elif query.live is Live.LONG_POLL and not page.entries and not exchange.app.stopping:
        FeedPoll(exchange, group, query, page)
    elif query.live is Live.LONG_POLL and not page.entries:
        _send_nothing(exchange, query, page)
    else:
        _send(exchange, query, page)


def _find(
    group: Group, bucket: str, query: ReadQuery, until: int | None = None
) -> FeedPage | Refused | Later[FeedPage]:
    after = query.offset
    if after == TAIL:
        return group.read_feed(bucket, None, None, 0)
    return group.read_feed(bucket, None if after == BEGINNING else after, until, query.bytes_max)


def _follow(exchange: Exchange, group: Group, query: ReadQuery, page: FeedPage) -> None:
    headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache"), _incarnation(exchange)]
    offset = query.offset or 0
    if offset == TAIL:
        offset = page.next_position
    events = FeedEvents(group, exchange)
    subscribe(exchange, group, events, headers, offset, query.cursor)


def _send(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    headers = _headers(exchange, page)
    if query.live is Live.LONG_POLL:
        headers.append(_cursor(query))
    bucket, lines = exchange.target.bucket, exchange.app.feed_lines
    if ARROW in (exchange.raw_headers.first("accept") or ""):
        from .feed_arrow import encode_arrow  # it takes a while, and few ask for it

        group = exchange.app.node.group_of(bucket).number
        work = _encode_apart(exchange, headers, ARROW, encode_arrow, page, group, bucket)
        exchange.app.spawn(exchange, work)
    elif sum(len(entry.rows) for entry in page.entries) > ROWS_AT_ONCE_MAX:
        exchange.app.spawn(exchange, _encode_apart(exchange, headers, NDJSON, lines.page, page))
    else:
        is_recent = query.live is Live.LONG_POLL
        body = lines.recent_page(bucket, page) if is_recent else lines.page(page)
        exchange.send(200, [*headers, ("content-type", NDJSON)], body)


async def _encode_apart(
    exchange: Exchange, headers: HeaderList, content_type: str, encode: Callable[..., bytes], *arguments: Any
) -> None:
    """Encode in a thread, so that nobody else waits for it."""
    body = await asyncio.to_thread(encode, *arguments)
    exchange.send(200, [*headers, ("content-type", content_type)], body)


def _send_nothing(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    exchange.empty(204, [*_headers(exchange, page), _cursor(query)])


def _headers(exchange: Exchange, page: FeedPage) -> HeaderList:
    headers = [
        ("stream-next-offset", format_offset(page.next_position)),
        ("cache-control", "no-store"),
        _incarnation(exchange),
    ]
    if page.next_position >= page.tail:
        headers.append(("stream-up-to-date", "true"))
    return headers


def _incarnation(exchange: Exchange) -> tuple[str, str]:
    return ("stream-incarnation", exchange.app.node.feed_incarnation)


def _cursor(query: ReadQuery) -> tuple[str, str]:
    return ("stream-cursor", cursor_at(time.time(), query.cursor))


class FeedPoll(Waiting):
    """A long-poll that waits for something to happen in a bucket."""

    def __init__(self, exchange: Exchange, group: Group, query: ReadQuery, page: FeedPage) -> None:
        self._bucket = exchange.target.bucket
        super().__init__(exchange, group, bucket_key(self._bucket))
        self._query = query._replace(offset=page.next_position)
        self._page = page
        group.watchers.add(self.incarnation, self._wake)
        wait = exchange.app.long_poll_seconds if query.wait_seconds is None else query.wait_seconds
        self.wake_in(wait)

    def _wake(self) -> None:
        page = _find(self.group, self._bucket, self._query)
        if isinstance(page, Later):
            self.stop()
            work = _answer_later(self.exchange, self.group, self._query, page)
            self.exchange.app.spawn(self.exchange, work)
        elif isinstance(page, Refused):
            self.stop()
            self.exchange.refused(page)
        elif page.entries:
            self.stop()
            _send(self.exchange, self._query, page)

    def tick(self) -> None:
        """The wait is over."""
        self.stop()
        _send_nothing(self.exchange, self._query, self._page)

    def end(self) -> None:
        """The server stops: as if the wait was over."""
        self.tick()

    def stop(self) -> None:
        """Wait no more."""
        self.group.watchers.remove(self.incarnation, self._wake)
        super().stop()


class FeedEvents:
    """A bucket as events: a data and a control event for each log entry."""

    def __init__(self, group: Group, exchange: Exchange) -> None:
        self._group = group
        self._bucket = exchange.target.bucket
        self._bytes_max = min(EVENT_BYTES, exchange.app.sse_bytes)
        self._encoded: tuple[tuple[int, int, int, str], Event] | None = None
        self._lines = exchange.app.feed_lines
        self.key = self.watched = bucket_key(self._bucket)

    def find(self, offset: int, cursor: str | None, is_final: bool = False) -> Found | FoundLater:
        """What happened after the position; None if nothing did yet."""
        page = self._page(offset, self._bytes_max)
        if isinstance(page, Later):
            return Later(partial(self._find_later, page, offset, cursor))
        return self._event(page, offset, cursor)

    async def _find_later(self, later: Later[FeedPage], offset: int, cursor: str | None) -> Found:
        page = await later.get()
        if isinstance(page, FeedPage) and not page.entries and page.next_position > offset:
            position = page.next_position
            control = encode_control(position, cursor_at(time.time(), cursor), True, False)
            return Event(control, position, True, False)  # the store had nothing for this bucket
        return self._event(page, offset, cursor)

    def _event(self, page: FeedPage | Refused, offset: int, cursor: str | None) -> Found:
        if isinstance(page, Refused):
            return page
        if not page.entries:
            return None
        key = (offset, page.next_position, page.tail, cursor_at(time.time(), cursor))
        if self._encoded is None or self._encoded[0] != key:
            self._encoded = (key, encode_events(page, self._bucket, self._lines, key[-1]))
        return self._encoded[1]

    def nothing_yet(self, offset: int, cursor: str) -> bytes | None:
        """A control event for a reader that has everything."""
        page = self._page(offset, 1)
        if isinstance(page, Refused | Later) or page.entries:
            return None
        return encode_control(page.next_position, cursor, True, False)

    def _page(self, offset: int, bytes_max: int) -> FeedPage | Refused | Later[FeedPage]:
        after = None if offset == BEGINNING else offset
        return self._group.read_feed(self._bucket, after, None, bytes_max)


def encode_events(page: FeedPage, bucket: str, lines: FeedLines, cursor: str) -> Event:
    """The entries of a page as events."""
    encoded = []
    last = page.entries[-1].position
    for entry in page.entries:
        position = page.next_position if entry.position == last else entry.position
        up_to_date = entry.position == last and page.next_position >= page.tail
        encoded.append(encode_data(lines.recent(bucket, entry)))
        encoded.append(encode_control(position, cursor, up_to_date, False))
    return Event(b"".join(encoded), page.next_position, page.next_position >= page.tail, False)
