"""The feed: everything that happens in a bucket, in one order, read like a stream of lines."""

import asyncio
import time
from functools import partial

from ...engine.group.watchers import bucket_key
from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.offsets import BEGINNING, TAIL
from ...model.outcomes import FeedPage, Refused
from ..errors import Problem
from ..exchange import Exchange
from ..observe.request_stats import FEED, FEED_LONG_POLL, FEED_SSE
from ..stream.long_poll import LongPoll, cursor_header
from ..stream.read import NDJSON, fetch
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

_LABELS = {Live.NO: FEED, Live.LONG_POLL: FEED_LONG_POLL, Live.SSE: FEED_SSE}


async def get_feed(exchange: Exchange) -> None:
    """GET on a bucket with an offset."""
    exchange.label = FEED
    query = parse_read_query(exchange.request.query_string)
    resumed = exchange.headers.get("last-event-id")
    if query.live is Live.SSE and resumed is not None:
        query = query._replace(offset=parse_offset(resumed))
    if query.offset is None:
        raise Problem("invalid_offset", "a live read needs an offset")
    if query.records is not None:
        raise Problem("invalid_parameter", "a feed is read by position, not by record")
    until_text = parse_query(exchange.request.query_string).get("until")
    until = None if until_text is None else _until(until_text, query)
    await exchange.become_current()
    services, group = exchange.services, exchange.group
    wanted = exchange.headers.get("stream-incarnation")
    if wanted is not None and wanted != services.node.feed_incarnation:
        message = "the feed is of another cluster, or of before a restore"
        raise Problem("incarnation_mismatch", message, [_incarnation(exchange)])
    for position in (query.offset, until):
        check_rewound(exchange, group, position)
    page = _find(group, exchange.target.bucket, query, until)
    await _answer(exchange, group, query, await fetch(page) if isinstance(page, Deferred) else page)


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


def check_rewound(exchange: Exchange, group: GroupApi, position: int | None) -> None:
    """Refuse a position that a restore went back behind: what was there has not happened."""
    if position is None or position < 0:
        return
    end = exchange.services.node.rewound_to(group.number, position)
    if end is not None:
        message = f"a restore went back to position {end}: read on from there, and undo what came after it"
        raise Problem("position_rewound", message, [_incarnation(exchange)], position=format_offset(end))


async def _answer(exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage | Refused) -> None:
    if isinstance(page, Refused):
        raise exchange.problem(page)
    if exchange.request.is_gone:
        return
    exchange.label = _LABELS[query.live]
    if query.live is Live.SSE:
        _follow(exchange, group, query, page)
    elif query.live is Live.LONG_POLL and not page.entries:
        if exchange.services.live.stopping:
            _send_nothing(exchange, query, page)
        else:
            FeedPoll(exchange, group, query, page)
    else:
        await _send(exchange, query, page)


def _find(
    group: GroupApi, bucket: str, query: ReadQuery, until: int | None = None
) -> FeedPage | Refused | Deferred[FeedPage]:
    after = query.offset
    if after == TAIL:
        return group.read_feed(bucket, None, None, 0)
    return group.read_feed(bucket, None if after == BEGINNING else after, until, query.bytes_max)


def _follow(exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage) -> None:
    headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache"), _incarnation(exchange)]
    offset = query.offset or 0
    if offset == TAIL:
        offset = page.next_position
    events = FeedEvents(group, exchange)
    subscribe(exchange, group, events, headers, offset, query.cursor)


async def _send(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    headers = _headers(exchange, page)
    if query.live is Live.LONG_POLL:
        headers.append(cursor_header(query))
    content_type, body = await _encode(exchange, query, page)
    exchange.reply(200, [*headers, ("content-type", content_type)], body)


async def _encode(exchange: Exchange, query: ReadQuery, page: FeedPage) -> tuple[str, bytes]:
    """The body and its type; where it takes a while, a thread makes it, so that nobody else waits."""
    bucket, lines = exchange.target.bucket, exchange.services.feed_lines
    if ARROW in (exchange.request.headers.first("accept") or ""):
        from .feed_arrow import encode_arrow  # the import takes a while, and few ask for it

        return ARROW, await asyncio.to_thread(encode_arrow, page, exchange.group.number, bucket)
    if sum(len(entry.rows) for entry in page.entries) > ROWS_AT_ONCE_MAX:
        return NDJSON, await asyncio.to_thread(lines.page, page)
    if query.live is Live.LONG_POLL:
        return NDJSON, lines.recent_page(bucket, page)
    return NDJSON, lines.page(page)


def _send_nothing(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    exchange.reply_empty(204, [*_headers(exchange, page), cursor_header(query)])


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
    return ("stream-incarnation", exchange.services.node.feed_incarnation)


class FeedPoll(LongPoll[FeedPage]):
    """A long-poll that waits for something to happen in a bucket."""

    def __init__(self, exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage) -> None:
        waiting = query._replace(offset=page.next_position)
        super().__init__(exchange, group, bucket_key(exchange.target.bucket), waiting, page)

    def find(self) -> FeedPage | Refused | Deferred[FeedPage]:
        """What has happened since."""
        return _find(self.group, self.exchange.target.bucket, self.query)

    def is_news(self, page: FeedPage) -> bool:
        """Whether something has."""
        return bool(page.entries)

    def answer(self, page: FeedPage) -> None:
        """Send what happened, or that nothing did."""
        if page.entries:
            self.exchange.spawn(_send(self.exchange, self.query, page))
        else:
            _send_nothing(self.exchange, self.query, page)

    async def answer_later(self, later: Deferred[FeedPage]) -> None:
        """The same for what lies in the store."""
        await _answer(self.exchange, self.group, self.query, await fetch(later))


class FeedEvents:
    """A bucket as events: a data and a control event for each log entry."""

    def __init__(self, group: GroupApi, exchange: Exchange) -> None:
        self._group = group
        self._bucket = exchange.target.bucket
        self._bytes_max = min(EVENT_BYTES, exchange.services.reads.sse_bytes)
        self._encoded: tuple[tuple[int, int, int, str], Event] | None = None
        self._lines = exchange.services.feed_lines
        self.key = self.watched = bucket_key(self._bucket)

    def find(self, offset: int, cursor: str | None, is_final: bool = False) -> Found | FoundLater:
        """What happened after the position; None if nothing did yet."""
        page = self._page(offset, self._bytes_max)
        if isinstance(page, Deferred):
            return Deferred(partial(self._find_later, page, offset, cursor))
        return self._event(page, offset, cursor)

    async def _find_later(self, later: Deferred[FeedPage], offset: int, cursor: str | None) -> Found:
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
        if isinstance(page, Refused | Deferred) or page.entries:
            return None
        return encode_control(page.next_position, cursor, True, False)

    def _page(self, offset: int, bytes_max: int) -> FeedPage | Refused | Deferred[FeedPage]:
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
