"""HEAD, and GET without waiting: what is there now."""

import asyncio
from collections.abc import Callable

from ...engine.failures import Failure
from ...engine.group import Group
from ...engine.later import Later
from ...model.contents import BEGINNING, TAIL
from ...model.media_type import JSON
from ...model.outcomes import AnyOutcome, Page, RecordPage, Refused
from ..exchange import Exchange
from ..syntax.query import ReadQuery
from ..syntax.tokens import format_offset, format_tag, format_time, tag_matches
from ..wire.headers import HeaderList
from .fetching import fetch

Handler = Callable[[Exchange], None]
Again = Callable[[], None]
Answer = Callable[[Exchange, ReadQuery, Group, Page], None]

NDJSON = "application/x-ndjson"
RECORDS_AT_ONCE_MAX = 4096
RECORD_EXTENSION = ("stream-extensions", "json-record-coordinates-v1")

_WITHOUT_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def head_stream(exchange: Exchange) -> None:
    """HEAD on a stream. It does not renew a sliding window."""
    target = exchange.target
    group = exchange.app.node.group_of(target.bucket)
    if not settle(exchange, group, head_stream):
        return
    found = group.describe(target.bucket, target.stream, exchange.wanted_incarnation())
    if isinstance(found, Refused):
        exchange.refused(found)
        return
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
    exchange.empty(304 if known is not None and tag_matches(known, tag) else 200, headers)


def read_stream(exchange: Exchange, query: ReadQuery, answer: Answer, certain: bool = False) -> None:
    """GET on a stream: find a stretch from an offset on, be certain of it, and hand it to `answer`."""
    target = exchange.target
    group = exchange.app.node.group_of(target.bucket)
    if not end_if_overdue(exchange, group, lambda: read_stream(exchange, query, answer)):
        return
    page = find_page(exchange, group, query)
    if isinstance(page, Later):
        certain = certain or group.is_current
        exchange.app.spawn(exchange, _read_later(exchange, query, answer, group, page, certain))
        return
    if at_tail(page) and not group.is_current:
        group.when_current(lambda: exchange.app.guard(exchange, read_stream, exchange, query, answer))
        return
    _answer(exchange, query, answer, group, page)


async def _read_later(
    exchange: Exchange, query: ReadQuery, answer: Answer, group: Group, later: Later[Page], certain: bool
) -> None:
    """The same for bytes in the store; `certain` if it was decided from all that was acknowledged then."""
    page = await fetch(later)
    if at_tail(page) and not certain:
        group.when_current(lambda: exchange.app.guard(exchange, read_stream, exchange, query, answer, True))
        return
    _answer(exchange, query, answer, group, page)


def _answer(exchange: Exchange, query: ReadQuery, answer: Answer, group: Group, page: Page | Refused) -> None:
    if isinstance(page, Refused):
        exchange.refused(page)
        return
    group.note_read(exchange.target.bucket, exchange.target.stream)
    answer(exchange, query, group, page)


def find_page(exchange: Exchange, group: Group, query: ReadQuery) -> Page | Refused | Later[Page]:
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


def answer_now(exchange: Exchange, query: ReadQuery, group: Group, page: Page) -> None:
    """A read that does not wait."""
    send_page(exchange, page, query, [])


def at_tail(page: Page | Refused) -> bool:
    """Whether the answer speaks of the newest state, and so must be certain of it."""
    return isinstance(page, Refused) or page.next_offset == page.tail


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
    headers.append(("cache-control", exchange.app.cache_control if is_fixed else "no-store"))
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
            exchange.empty(304, headers)
            return
    exchange.send(200, headers, bytes_of(page))


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
        exchange.send(200, headers, await asyncio.to_thread(body))

    if len(page.chunks) <= RECORDS_AT_ONCE_MAX:
        exchange.send(200, headers, body())
    else:
        exchange.app.spawn(exchange, send())


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


def settle(exchange: Exchange, group: Group, again: Handler) -> bool:
    """Whether the applied state may be answered from now; if not, `again` is called when it may."""
    if not end_if_overdue(exchange, group, lambda: again(exchange)):
        return False
    return settle_group(exchange, group, again)


def settle_group(exchange: Exchange, group: Group, again: Handler) -> bool:
    """The same for what does not concern a single stream."""
    if group.is_current:
        return True
    group.when_current(lambda: exchange.app.guard(exchange, again, exchange))
    return False


def end_if_overdue(exchange: Exchange, group: Group, again: Again) -> bool:
    """Whether the deadline has not passed; if it has, the stream is ended, and then `again` is called."""
    target = exchange.target
    if not group.is_overdue(target.bucket, target.stream):
        return True

    def ended(outcome: AnyOutcome | Failure) -> None:
        if isinstance(outcome, Failure):
            exchange.refused(outcome)
        else:
            exchange.app.guard(exchange, again)

    group.end_overdue(target.bucket, target.stream, ended)
    return False
