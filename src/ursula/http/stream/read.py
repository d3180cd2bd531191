"""HEAD and GET on a stream: what is there now, at once, by long-poll or as events."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ...cold.objects.store import ObjectDamaged, ObjectMissing, StoreUnavailable
from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.offsets import BEGINNING, TAIL
from ...model.outcomes import Page, RecordPage, Refused
from ...model.text.media_type import JSON
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.query import ReadQuery
from ..syntax.tokens import format_offset, format_tag, format_time, tag_matches
from ..wire.headers import HeaderList

T = TypeVar("T")
Answer = Callable[[Exchange, ReadQuery, GroupApi, Page], None]

NDJSON = "application/x-ndjson"
RECORDS_AT_ONCE_MAX = 4096
RECORD_EXTENSION = ("stream-extensions", "json-record-coordinates-v1")

_WITHOUT_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


async def head_stream(exchange: Exchange) -> None:
    """HEAD on a stream. It does not renew a sliding window."""
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
    """Find a stretch from an offset on, be certain of it, and hand it to `answer`.

    Most reads find it in memory and are answered at once, without a task.
    """
    group, target = exchange.group, exchange.target
    if not group.is_overdue(target.bucket, target.stream):
        page = _find_page(exchange, group, query)
        if not isinstance(page, Deferred) and (group.is_current or not _is_at_tail(page)):
            _answer(exchange, query, answer, group, page)
            return
    exchange.spawn(_read_patiently(exchange, query, answer))


async def _read_patiently(exchange: Exchange, query: ReadQuery, answer: Answer) -> None:
    """The same where something must be waited for: an overdue end, the store, or what the log has more."""
    group = exchange.group
    is_certain = group.is_current
    await exchange.expire_if_due()
    while True:
        page = _find_page(exchange, group, query)
        if isinstance(page, Deferred):
            page = await fetch(page)
        if is_certain or not _is_at_tail(page):
            break
        await exchange.become_current()
        is_certain = True
    _answer(exchange, query, answer, group, page)


def _is_at_tail(page: Page | Refused) -> bool:
    """Whether the answer speaks of the newest state, and so must be certain of it."""
    return isinstance(page, Refused) or page.next_offset == page.tail


def _answer(
    exchange: Exchange, query: ReadQuery, answer: Answer, group: GroupApi, page: Page | Refused
) -> None:
    if isinstance(page, Refused):
        raise exchange.problem(page)
    group.note_read(exchange.target.bucket, exchange.target.stream)
    answer(exchange, query, group, page)


def _find_page(exchange: Exchange, group: GroupApi, query: ReadQuery) -> Page | Refused | Deferred[Page]:
    """What the query asks for, from the applied state."""
    target, records, incarnation = exchange.target, query.records, exchange.wanted_incarnation()
    if records is None:
        offset = BEGINNING if query.offset is None else query.offset
        return group.read(target.bucket, target.stream, offset, query.bytes_max, incarnation=incarnation)
    return group.read_records(
        target.bucket,
        target.stream,
        records.first,
        records.last,
        records.count_max,
        query.bytes_max,
        incarnation,
        query.offset,
    )


async def fetch(later: Deferred[T]) -> T | Refused:
    """What a read comes to whose bytes lie in the store; a failure of the store is a problem."""
    try:
        return await later.get()
    except (ObjectMissing, ObjectDamaged) as error:
        raise Problem("object_damaged", str(error)) from error
    except StoreUnavailable as error:
        raise Problem("store_unavailable", str(error)) from error


def answer_now(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """A read that does not wait."""
    send_page(exchange, page, query, [])


def send_page(exchange: Exchange, page: Page, query: ReadQuery, more: HeaderList) -> None:
    """Answer with a stretch of a stream, or 304 if the client has it."""
    is_up_to_date = page.next_offset == page.tail
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
    is_fixed = not is_up_to_date and (query.records is None or query.records.first is not None)
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
    """Answer with lines; many are put together in a thread, so that nobody else waits for them."""

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
    """One line for each message; line ends inside of one can only be space between its tokens."""
    lines = [message.translate(_WITHOUT_LINE_ENDS) for message in messages]
    if not as_envelopes:
        return lines
    return [b'{"record":%d,"value":%b}' % (record, line) for record, line in enumerate(lines, first)]
