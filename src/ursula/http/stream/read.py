"""HEAD and GET on a stream: its description, and ranges of its messages."""

import asyncio
from collections.abc import Callable
from functools import partial

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.offsets import BEGINNING, TAIL
from ...model.outcomes import Page, RecordPage, Refused
from ...model.text.media_type import JSON
from ...times import format_time
from ..exchange import NDJSON, Exchange
from ..syntax.query import Live, ReadQuery
from ..syntax.tokens import format_offset, format_tag, tag_matches
from ..wire.headers import HeaderList

Answer = Callable[[Exchange, ReadQuery, GroupApi, Page], None]

RECORDS_AT_ONCE_MAX = 4096
RECORD_EXTENSION = ("stream-extensions", "json-record-coordinates-v1")

_WITHOUT_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


async def head_stream(exchange: Exchange) -> None:
    """HEAD on a stream. It does not renew the TTL."""
    found = await exchange.describe()
    headers = exchange.state_headers(found.incarnation, found.tail, found.tail, found.closed)
    tag = dict(headers)["etag"]
    headers += [("content-type", found.content_type), ("cache-control", "no-store")]
    if found.ttl_seconds is not None:
        headers.append(("stream-ttl", str(found.ttl_seconds)))
    if found.expires_at is not None:
        headers.append(("stream-expires-at", format_time(found.expires_at)))
    if found.earliest:
        headers.append(("stream-earliest-offset", format_offset(found.earliest)))
    if found.snapshot is not None:
        headers.append(("stream-snapshot-offset", format_offset(found.snapshot.offset)))
    if found.next_record is not None:
        headers.append(RECORD_EXTENSION)
        headers.append(("stream-record-first", str(found.first_record)))
        headers.append(("stream-record-next", str(found.next_record)))
    known = exchange.headers.get("if-none-match")
    exchange.reply_empty(304 if known is not None and tag_matches(known, tag) else 200, headers)


def read_stream(exchange: Exchange, query: ReadQuery, answer: Answer) -> None:
    """Read a page from an offset on, make sure that it is recent enough, and hand it to `answer`.

    Most pages are in memory and are sent at once, without a task.
    """
    group, target = exchange.group, exchange.target
    if not group.is_overdue(target.bucket, target.stream):
        page = _read_page(exchange, query, group)
        if not isinstance(page, Deferred) and (
            group.is_current or not exchange.must_settle(page, partial(_needs_tail, query))
        ):
            _answer(exchange, query, answer, page)
            return
    exchange.spawn(_read_later(exchange, query, answer))


async def _read_later(exchange: Exchange, query: ReadQuery, answer: Answer) -> None:
    """The same for a read that must wait: for a stream to expire, for the store, or for the log."""
    page = await exchange.read_page(partial(_read_page, exchange, query), partial(_needs_tail, query))
    _answer(exchange, query, answer, page)


def _needs_tail(query: ReadQuery, page: Page) -> bool:
    """Whether the response depends on the newest state, so that an older one must not be used.

    Events reach the tail sooner or later, wherever they begin.
    """
    is_last = query.records is not None and query.records.last is not None
    return page.next_offset == page.tail or query.live is Live.SSE or is_last


def _answer(exchange: Exchange, query: ReadQuery, answer: Answer, page: Page | Refused) -> None:
    if isinstance(page, Refused):
        raise exchange.problem(page)
    if (not page.chunks or query.live is Live.SSE) and _needs_tail(query, page):
        exchange.check_certain()
    group = exchange.group
    group.note_read(exchange.target.bucket, exchange.target.stream)
    answer(exchange, query, group, page)


def _read_page(exchange: Exchange, query: ReadQuery, group: GroupApi) -> Page | Refused | Deferred[Page]:
    """The page that the query asks for, from the applied state."""
    target, records, incarnation = exchange.target, query.records, exchange.requested_incarnation()
    if records is None:
        offset = BEGINNING if query.offset is None else query.offset
        return group.read(target.bucket, target.stream, offset, query.bytes_max, incarnation=incarnation)
    return group.read_records(
        target.bucket,
        target.stream,
        record=records.first,
        tail_records=records.last,
        records_max=records.count_max,
        bytes_max=query.bytes_max,
        incarnation=incarnation,
        offset=query.offset,
    )


def answer_now(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """Answer a read that does not wait."""
    send_page(exchange, page, query, [])


def send_page(exchange: Exchange, page: Page, query: ReadQuery, more: HeaderList) -> None:
    """Respond with a range of a stream, or with 304 if the client has it."""
    is_at_tail = page.next_offset == page.tail
    is_up_to_date = is_at_tail and exchange.doubt is None
    is_end = is_up_to_date and page.closed
    incarnation = exchange.incarnation(page.incarnation)
    headers = [
        ("content-type", NDJSON if isinstance(page, RecordPage) else page.content_type),
        ("stream-next-offset", format_offset(page.next_offset)),
        ("stream-incarnation", incarnation),
        *more,
    ]
    if is_up_to_date:
        headers.append(("stream-up-to-date", "true"))
    is_fixed = not is_at_tail and (query.records is None or query.records.first is not None)
    headers.append(("cache-control", exchange.services.reads.cache_control if is_fixed else "no-store"))
    if is_end:
        headers.append(("stream-closed", "true"))
    if isinstance(page, RecordPage):
        headers.append(RECORD_EXTENSION)
        headers.append(("stream-record-first", str(page.first_record)))
        headers.append(("stream-record-next", str(page.record + len(page.chunks))))
        _send_records(exchange, headers, page, query.records is not None and query.records.as_envelopes)
        return
    if query.offset != TAIL:
        tag = format_tag(incarnation, page.offset, page.next_offset, is_end)
        headers.append(("etag", tag))
        known = exchange.headers.get("if-none-match")
        if known is not None and tag_matches(known, tag):
            exchange.reply_empty(304, headers)
            return
    exchange.reply(200, headers, bytes_of(page))


def _send_records(exchange: Exchange, headers: HeaderList, page: RecordPage, as_envelopes: bool) -> None:
    """Respond with lines. If there are many, a thread joins them, so that other requests need not wait."""

    def body() -> bytes:
        step, record = RECORDS_AT_ONCE_MAX, page.record
        some = (
            record_lines(page.chunks[first : first + step], record + first, as_envelopes)
            for first in range(0, len(page.chunks), step)
        )
        return b"".join(b"\n".join([*lines, b""]) for lines in some)

    async def send() -> None:
        exchange.reply(200, headers, await asyncio.to_thread(body))

    if len(page.chunks) <= RECORDS_AT_ONCE_MAX:
        exchange.reply(200, headers, body())
    else:
        exchange.spawn(send())


def bytes_of(page: Page) -> bytes:
    """The bytes of a page: JSON messages as one array."""
    chunks = page.chunks
    if page.media_type == JSON:
        return b"[" + b",".join(chunks) + b"]"
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def record_lines(messages: list[bytes], first: int, as_envelopes: bool) -> list[bytes]:
    """One line for each message. Line breaks inside a message can only be whitespace between JSON tokens."""
    lines = [message.translate(_WITHOUT_LINE_ENDS) for message in messages]
    if not as_envelopes:
        return lines
    return [b'{"record":%d,"value":%b}' % (record, line) for record, line in enumerate(lines, first)]
