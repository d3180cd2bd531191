"""Long-poll: answer when there is something after the offset, or say that there is nothing yet."""

import time

from ...engine.group import Group
from ...engine.later import Later
from ...model.outcomes import Page, RecordPage, Refused
from ..exchange import Exchange
from ..observe.request_stats import STREAM_LONG_POLL
from ..syntax.query import ReadQuery
from ..syntax.tokens import cursor_at, format_offset
from ..wire.headers import HeaderList
from .fetching import fetch
from .live import Waiting
from .read import send_page


def answer_long_poll(exchange: Exchange, query: ReadQuery, group: Group, page: Page) -> None:
    """A read that waits for a while if it is at the tail."""
    if exchange.request.is_gone:
        return
    exchange.route = STREAM_LONG_POLL
    if page.next_offset > page.offset:
        send_page(exchange, page, query, [_cursor(query)])
    elif page.closed or exchange.app.stopping:
        send_nothing(exchange, page, query)
    else:
        LongPoll(exchange, group, page, query)


def send_nothing(exchange: Exchange, page: Page, query: ReadQuery) -> None:
    """204: the client has everything; with Stream-Closed, for good."""
    headers: HeaderList = [
        ("stream-next-offset", format_offset(page.tail)),
        ("stream-up-to-date", "true"),
        ("stream-incarnation", exchange.incarnation(page.incarnation)),
        ("cache-control", "no-store"),
        ("stream-closed", "true") if page.closed else _cursor(query),
    ]
    exchange.empty(204, headers)


def _cursor(query: ReadQuery) -> tuple[str, str]:
    return ("stream-cursor", cursor_at(time.time(), query.cursor))


class LongPoll(Waiting):
    """A long-poll that waits at the tail."""

    def __init__(self, exchange: Exchange, group: Group, page: Page, query: ReadQuery) -> None:
        super().__init__(exchange, group, page.incarnation)
        self._page = page
        self._query = query
        group.watchers.add(self.incarnation, self._wake)
        wait = exchange.app.long_poll_seconds if query.wait_seconds is None else query.wait_seconds
        self.wake_in(wait)

    def _wake(self) -> None:
        page = self._find()
        if isinstance(page, Later):
            self.stop()
            self.exchange.app.spawn(self.exchange, self._answer_later(page))
        elif isinstance(page, Refused):
            self.stop()
            self.exchange.refused(page)
        elif page.next_offset > page.offset:
            self.stop()
            send_page(self.exchange, page, self._query, [_cursor(self._query)])
        elif page.closed:
            self.stop()
            send_nothing(self.exchange, page, self._query)

    async def _answer_later(self, later: Later[Page]) -> None:
        page = await fetch(later)
        if isinstance(page, Refused):
            self.exchange.refused(page)
        else:
            answer_long_poll(self.exchange, self._query, self.group, page)

    def _find(self) -> Page | Refused | Later[Page]:
        """What is there now after the place where it waits."""
        bucket, stream, *_ = self.exchange.target
        bytes_max, records = self._query.bytes_max, self._query.records
        if records is None or not isinstance(self._page, RecordPage):
            return self.group.read(bucket, stream, self._page.offset, bytes_max, incarnation=self.incarnation)
        first = self._page.record
        return self.group.read_records(
            bucket, stream, first, None, records.count_max, bytes_max, self.incarnation
        )

    def tick(self) -> None:
        """The wait is over."""
        self.stop()
        send_nothing(self.exchange, self._page, self._query)

    def end(self) -> None:
        """The server stops: as if the wait was over."""
        self.tick()

    def stop(self) -> None:
        """Wait no more."""
        self.group.watchers.remove(self.incarnation, self._wake)
        super().stop()
