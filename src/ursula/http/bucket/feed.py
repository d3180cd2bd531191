"""The feed: everything that happens in a bucket, in one order, read like a stream of lines."""

import asyncio
from functools import partial

from ...engine.group.watchers import bucket_key
from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.offsets import BEGINNING, TAIL
from ...model.outcomes import FeedPage, Refused
from ..errors import Problem
from ..exchange import NDJSON, Exchange
from ..live.fan_out import subscribe
from ..live.long_poll import LongPoll, cursor_header
from ..observe.request_stats import FEED, FEED_LONG_POLL, FEED_SSE
from ..syntax.query import Live, ReadQuery, parse_query, parse_read_query
from ..syntax.tokens import format_offset, parse_offset
from ..wire.headers import HeaderList
from .feed_events import FeedEvents

ARROW = "application/vnd.apache.arrow.stream"
ROWS_AT_ONCE_MAX = 1000
"""A page with more rows than this is encoded in a thread, so that other requests need not wait for it."""

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
    until = None if until_text is None else _parse_until(until_text, query)
    services, group = exchange.services, exchange.group
    incarnation = exchange.headers.get("stream-incarnation")
    if incarnation is not None and incarnation != services.node.feed_incarnation:
        message = "the feed belongs to another cluster, or has been restored since"
        raise Problem("incarnation_mismatch", message, [_incarnation_header(exchange)])
    for position in (query.offset, until):
        check_rewound(exchange, group, position)
    bucket = exchange.target.bucket
    page = await exchange.read_page(
        lambda group: _read_page(group, bucket, query, until), partial(_needs_tail, query)
    )
    if isinstance(page, Refused):
        raise exchange.problem(page)
    if (not page.entries or query.live is Live.SSE) and _needs_tail(query, page):
        exchange.check_certain()
    await _answer(exchange, group, query, page)


def _needs_tail(query: ReadQuery, page: FeedPage) -> bool:
    """Whether the response depends on the newest state, as for streams."""
    return page.next_position >= page.tail or query.live is Live.SSE


def _parse_until(text: str, query: ReadQuery) -> int:
    """The last position to read."""
    until, offset = parse_offset(text), query.offset or 0
    if until < 0:
        raise Problem("invalid_parameter", "until must be a position")
    if query.live is not Live.NO or offset == TAIL:
        raise Problem("invalid_parameter", "until needs a position to read from, and no live read")
    if offset > until:
        raise Problem("invalid_parameter", "until is before the offset")
    return until


def check_rewound(exchange: Exchange, group: GroupApi, position: int | None) -> None:
    """Reject a position that a restore has undone: whatever was there never happened."""
    if position is None or position < 0:
        return
    end = exchange.services.node.rewound_to(group.number, position)
    if end is not None:
        message = f"a restore went back to position {end}: continue from there, and undo what came after it"
        headers = [_incarnation_header(exchange)]
        raise Problem("position_rewound", message, headers, position=format_offset(end))


async def _answer(exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage) -> None:
    if exchange.request.is_gone:
        return
    exchange.label = _LABELS[query.live]
    if query.live is Live.SSE:
        _follow(exchange, group, query, page)
    elif query.live is Live.LONG_POLL and _is_early(exchange, group, page):
        FeedPoll(exchange, group, query, page)
    elif query.live is Live.LONG_POLL and not page.entries:
        _send_nothing_new(exchange, query, page)
    else:
        await _send_page(exchange, query, page)


def _is_early(exchange: Exchange, group: GroupApi, page: FeedPage) -> bool:
    """Whether a long-poll waits: because nothing has happened, or because followers were told just before.

    A follower of a busy bucket polls again at once. If each poll were answered with the one entry that there
    is by then, the polls would take a tenth of the server's time.
    """
    if exchange.services.live.is_stopping:
        return False
    if not page.entries:
        return True
    return page.next_position >= page.tail and not group.watchers.may_tell(exchange.target.bucket)


def _read_page(
    group: GroupApi, bucket: str, query: ReadQuery, until: int | None = None
) -> FeedPage | Refused | Deferred[FeedPage]:
    after = query.offset
    if after == TAIL:
        return group.read_feed(bucket, None, None, 0)
    return group.read_feed(bucket, None if after == BEGINNING else after, until, query.bytes_max)


def _follow(exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage) -> None:
    headers = [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        _incarnation_header(exchange),
    ]
    offset = query.offset or 0
    if offset == TAIL:
        offset = page.next_position
    events = FeedEvents(group, exchange)
    subscribe(exchange, group, events, headers=headers, offset=offset, cursor=query.cursor)


async def _send_page(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    headers = _headers(exchange, page)
    if query.live is Live.LONG_POLL:
        headers.append(cursor_header(query))
    content_type, body = await _encode(exchange, query, page)
    exchange.reply(200, [*headers, ("content-type", content_type)], body)


async def _encode(exchange: Exchange, query: ReadQuery, page: FeedPage) -> tuple[str, bytes]:
    """The body and its type. A large one is encoded in a thread, so that other requests need not wait."""
    bucket, lines = exchange.target.bucket, exchange.services.feed_lines
    if ARROW in (exchange.request.headers.first("accept") or ""):
        from .feed_arrow import encode_arrow  # the import is slow, and few clients need it

        return ARROW, await asyncio.to_thread(encode_arrow, page, exchange.group.number, bucket)
    if sum(len(entry.rows) for entry in page.entries) > ROWS_AT_ONCE_MAX:
        return NDJSON, await asyncio.to_thread(lines.page, page)
    if query.live is Live.LONG_POLL:
        return NDJSON, lines.recent_page(bucket, page)
    return NDJSON, lines.page(page)


def _send_nothing_new(exchange: Exchange, query: ReadQuery, page: FeedPage) -> None:
    exchange.reply_empty(204, [*_headers(exchange, page), cursor_header(query)])


def _headers(exchange: Exchange, page: FeedPage) -> HeaderList:
    headers = [
        ("stream-next-offset", format_offset(page.next_position)),
        ("cache-control", "no-store"),
        _incarnation_header(exchange),
    ]
    if page.next_position >= page.tail and exchange.doubt is None:
        headers.append(("stream-up-to-date", "true"))
    return headers


def _incarnation_header(exchange: Exchange) -> tuple[str, str]:
    return ("stream-incarnation", exchange.services.node.feed_incarnation)


class FeedPoll(LongPoll[FeedPage]):
    """A long-poll that waits for something to happen in a bucket, or for more than there is in its page."""

    def __init__(self, exchange: Exchange, group: GroupApi, query: ReadQuery, page: FeedPage) -> None:
        waiting = query if page.entries else query._replace(offset=page.next_position)
        super().__init__(exchange, group, bucket_key(exchange.target.bucket), waiting, page)

    def read(self) -> FeedPage | Refused | Deferred[FeedPage]:
        """The page after the position, as of now."""
        return _read_page(self.group, self.exchange.target.bucket, self.query)

    def has_news(self, page: FeedPage) -> bool:
        """Whether something happened."""
        return bool(page.entries)

    def answer(self, page: FeedPage) -> None:
        """Respond with the news, or with 204."""
        if page.entries:
            self.exchange.spawn(_send_page(self.exchange, self.query, page))
        else:
            _send_nothing_new(self.exchange, self.query, page)

    async def answer_fetched(self, page: FeedPage) -> None:
        """Respond with a page that came from the store; if it is empty, go on waiting after it."""
        await _answer(self.exchange, self.group, self.query, page)
