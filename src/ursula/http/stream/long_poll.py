"""Long-poll on a stream: respond once there are messages after the offset, or with 204 after a while."""

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.outcomes import Page, RecordPage, Refused
from ..exchange import Exchange
from ..live.long_poll import LongPoll, cursor_header
from ..observe.request_stats import STREAM_LONG_POLL
from ..syntax.query import ReadQuery
from ..syntax.tokens import format_offset
from ..wire.headers import HeaderList
from .read import send_page


def answer_long_poll(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """Respond to a read with its page; at the tail of an open stream, wait for a while first."""
    if exchange.request.is_gone:
        return
    exchange.label = STREAM_LONG_POLL
    if page.next_offset > page.offset:
        send_page(exchange, page, query, [cursor_header(query)])
    elif page.closed or exchange.services.live.is_stopping:
        send_nothing_new(exchange, page, query)
    else:
        StreamPoll(exchange, group, query, page)


def send_nothing_new(exchange: Exchange, page: Page, query: ReadQuery) -> None:
    """Respond with 204: the client has everything. With Stream-Closed, nothing will follow."""
    headers: HeaderList = [
        ("stream-next-offset", format_offset(page.tail)),
        ("stream-incarnation", exchange.incarnation(page.incarnation)),
        ("cache-control", "no-store"),
        ("stream-closed", "true") if page.closed else cursor_header(query),
    ]
    if exchange.doubt is None:
        headers.append(("stream-up-to-date", "true"))
    exchange.reply_empty(204, headers)


class StreamPoll(LongPoll[Page]):
    """A long-poll at the tail of a stream."""

    def __init__(self, exchange: Exchange, group: GroupApi, query: ReadQuery, page: Page) -> None:
        super().__init__(exchange, group, page.incarnation, query, page)

    def read(self) -> Page | Refused | Deferred[Page]:
        """The page after the offset, as of now."""
        bucket, stream, *_ = self.exchange.target
        bytes_max, records = self.query.bytes_max, self.query.records
        if records is None or not isinstance(self.page, RecordPage):
            return self.group.read(bucket, stream, self.page.offset, bytes_max, incarnation=self.watched)
        return self.group.read_records(
            bucket,
            stream,
            record=self.page.record,
            tail_records=None,
            records_max=records.count_max,
            bytes_max=bytes_max,
            incarnation=self.watched,
        )

    def has_news(self, page: Page) -> bool:
        """Whether there are new messages, or there will never be any."""
        return page.next_offset > page.offset or page.closed

    def answer(self, page: Page) -> None:
        """Respond with the new messages, or with 204."""
        if page.next_offset > page.offset:
            send_page(self.exchange, page, self.query, [cursor_header(self.query)])
        else:
            send_nothing_new(self.exchange, page, self.query)

    async def answer_fetched(self, page: Page) -> None:
        """Respond with a page that came from the store."""
        answer_long_poll(self.exchange, self.query, self.group, page)
