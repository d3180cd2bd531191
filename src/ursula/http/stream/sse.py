"""A stream as server-sent events."""

import base64
import codecs
import re
from functools import partial

from msgspec.structs import replace

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.limits import READ_BYTES_DEFAULT
from ...model.outcomes import Page, RecordPage, Refused
from ...model.text.media_type import JSON, is_text
from ..exchange import Exchange
from ..live.events import Event, PageEvents, encode_control, encode_data
from ..live.fan_out import subscribe
from ..observe.request_stats import STREAM_SSE
from ..syntax.query import ReadQuery, RecordQuery
from ..wire.request import BodyChunk
from .long_poll import send_nothing_new
from .read import RECORD_EXTENSION, bytes_of, record_lines

CHARACTER_BYTES_MAX = 4
"""The maximum number of bytes of a character in UTF-8."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


def answer_sse(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """Respond to a read with events, beginning with its page."""
    if exchange.request.is_gone:
        return
    exchange.label = STREAM_SSE
    if "last-event-id" in exchange.headers and page.closed and page.offset == page.tail:
        send_nothing_new(exchange, page, query)
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
    events = StreamEvents(group, exchange, page, query.records)
    subscribe(exchange, group, events, headers=headers, offset=page.offset, cursor=query.cursor)


class StreamEvents(PageEvents[Page]):
    """A stream as events; with `records`, its messages as lines."""

    def __init__(self, group: GroupApi, exchange: Exchange, page: Page, records: RecordQuery | None) -> None:
        incarnation = page.incarnation
        key = incarnation if records is None else f"{incarnation} {records[2:]}"
        super().__init__(key, incarnation, exchange.services.contact)
        self._group = group
        self._bucket, self._stream = exchange.target.bucket, exchange.target.stream
        self._bytes_max = min(READ_BYTES_DEFAULT, exchange.services.reads.sse_bytes)
        self._records = records
        self._is_text = records is None and page.media_type != JSON and is_text(page.media_type)
        self._as_envelopes = records is not None and records.as_envelopes

    def read(self, offset: int) -> Page | Refused | Deferred[Page]:
        """The page after an offset. A page of text that is not at the tail has at least one character."""
        if self._records is None:
            page = self._read(offset, self._bytes_max, whole=True)
            if self._is_text and isinstance(page, Deferred):
                return Deferred(partial(self._fetch_text, page))
            if self._is_text and isinstance(page, Page) and _is_cut_character(page):
                return Deferred(partial(self._complete, page))
            return page
        return self._group.read_records(
            self._bucket,
            self._stream,
            record=None,
            tail_records=None,
            records_max=self._records.count_max,
            bytes_max=self._bytes_max,
            incarnation=self.watched,
            offset=offset,
        )

    def _read(self, offset: int, bytes_max: int, whole: bool) -> Page | Refused | Deferred[Page]:
        return self._group.read(
            self._bucket, self._stream, offset, bytes_max, whole=whole, incarnation=self.watched
        )

    async def _fetch_text(self, deferred: Deferred[Page]) -> Page | Refused:
        page = await deferred.get()
        return await self._complete(page) if isinstance(page, Page) else page

    async def _complete(self, page: Page) -> Page | Refused:
        """Add the next bytes to a page that has only the beginning of a character.

        A page ends with a message, which may end inside a character. If the next message does not fit into
        the page, waiting does not complete the character.
        """
        while _is_cut_character(page):
            rest = self._read(page.next_offset, CHARACTER_BYTES_MAX, whole=False)
            if isinstance(rest, Deferred):
                rest = await rest.get()
            if isinstance(rest, Refused):
                return rest
            page = replace(
                page,
                chunks=[*page.chunks, *rest.chunks],
                next_offset=rest.next_offset,
                tail=rest.tail,
                closed=rest.closed,
            )
        return page

    def page_key(self, page: Page, offset: int) -> tuple[object, ...] | None:
        """The key of the encoded page; None if it has no messages and the stream is open."""
        if page.next_offset == offset and not page.closed:
            return None
        return (page.next_offset, page.tail, page.closed)

    def encode_up_to_date(self, offset: int, cursor: str) -> bytes | None:
        """A control event for a reader at the tail of an open stream."""
        page = self.read(offset)
        if isinstance(page, Refused | Deferred) or page.next_offset != offset or page.closed:
            return None
        return encode_control(offset, cursor, self.is_certain, False, page)

    def encode(self, page: Page, cursor: str, is_final: bool) -> Event | None:
        """The events for a range of a stream; None if it has only the beginning of a character.

        Such a beginning at the end of the range is left for the next event, unless it is final.
        """
        next_offset = page.next_offset
        at_tail = next_offset == page.tail
        encoded = b""
        if page.chunks:
            data = bytes_of(page)
            if isinstance(page, RecordPage):
                lines = record_lines(page.chunks, page.record, self._as_envelopes)
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
        control = encode_control(next_offset, cursor, at_tail and self.is_certain, is_last, page)
        return Event(BodyChunk(encoded, control), next_offset, at_tail, is_last)


def _is_cut_character(page: Page) -> bool:
    """Whether a page of text has only the beginning of a character, and more follows it."""
    size = page.next_offset - page.offset
    return (
        0 < size < CHARACTER_BYTES_MAX
        and page.next_offset < page.tail
        and not codecs.utf_8_decode(bytes_of(page), "replace", False)[0]
    )
