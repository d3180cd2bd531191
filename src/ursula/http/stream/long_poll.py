"""Long-poll: answer when there is something after the offset, or say that there is nothing yet."""

import time
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.outcomes import Page, RecordPage, Refused
from ..exchange import Exchange
from ..observe.request_stats import STREAM_LONG_POLL
from ..syntax.query import ReadQuery
from ..syntax.tokens import cursor_at, format_offset
from ..wire.headers import HeaderList
from .live import Waiting
from .read import fetch, send_page

P = TypeVar("P")


def answer_long_poll(exchange: Exchange, query: ReadQuery, group: GroupApi, page: Page) -> None:
    """A read that waits for a while if it is at the tail."""
    if exchange.request.is_gone:
        return
    exchange.label = STREAM_LONG_POLL
    if page.next_offset > page.offset:
        send_page(exchange, page, query, [cursor_header(query)])
    elif page.closed or exchange.services.live.stopping:
        send_nothing(exchange, page, query)
    else:
        StreamPoll(exchange, group, query, page)


def send_nothing(exchange: Exchange, page: Page, query: ReadQuery) -> None:
    """204: the client has everything; with Stream-Closed, for good."""
    headers: HeaderList = [
        ("stream-next-offset", format_offset(page.tail)),
        ("stream-up-to-date", "true"),
        ("stream-incarnation", exchange.incarnation(page.incarnation)),
        ("cache-control", "no-store"),
        ("stream-closed", "true") if page.closed else cursor_header(query),
    ]
    exchange.reply_empty(204, headers)


def cursor_header(query: ReadQuery) -> tuple[str, str]:
    """What keeps caches from giving two polls the same answer."""
    return ("stream-cursor", cursor_at(time.time(), query.cursor))


class LongPoll(Waiting, Generic[P]):
    """A request that waits for something after a place in a stream or a bucket, but not for ever."""

    def __init__(self, exchange: Exchange, group: GroupApi, watched: str, query: ReadQuery, page: P) -> None:
        super().__init__(exchange, group, watched)
        self.query = query
        self.page = page
        group.watchers.add(watched, self._wake)
        wait = query.wait_seconds
        self.wake_in(exchange.services.reads.long_poll_seconds if wait is None else wait)

    def find(self) -> P | Refused | Deferred[P]:
        """What is there now after the place where it waits."""
        raise NotImplementedError

    def is_news(self, page: P) -> bool:
        """Whether there is something to tell."""
        raise NotImplementedError

    def answer(self, page: P) -> None:
        """Tell it; `page` may hold nothing, if the wait is over."""
        raise NotImplementedError

    async def answer_later(self, later: Deferred[P]) -> None:
        """The same for what lies in the store."""
        raise NotImplementedError

    def _wake(self) -> None:
        page = self.find()
        if isinstance(page, Deferred):
            self._stop_for(self.answer_later(page))
        elif isinstance(page, Refused):
            self.stop()
            self.exchange.reply_problem(self.exchange.problem(page))
        elif self.is_news(page):
            self.stop()
            self.answer(page)

    def _stop_for(self, work: Coroutine[Any, Any, None]) -> None:
        self.stop()
        self.exchange.spawn(work)

    def tick(self) -> None:
        """The wait is over."""
        self.stop()
        self.answer(self.page)

    def end(self) -> None:
        """The server stops: as if the wait was over."""
        self.tick()

    def stop(self) -> None:
        """Wait no more."""
        self.group.watchers.remove(self.watched, self._wake)
        super().stop()


class StreamPoll(LongPoll[Page]):
    """A long-poll at the tail of a stream."""

    def __init__(self, exchange: Exchange, group: GroupApi, query: ReadQuery, page: Page) -> None:
        super().__init__(exchange, group, page.incarnation, query, page)

    def find(self) -> Page | Refused | Deferred[Page]:
        """What is there now after the place where it waits."""
        bucket, stream, *_ = self.exchange.target
        bytes_max, records = self.query.bytes_max, self.query.records
        if records is None or not isinstance(self.page, RecordPage):
            return self.group.read(bucket, stream, self.page.offset, bytes_max, incarnation=self.watched)
        first, count_max = self.page.record, records.count_max
        return self.group.read_records(bucket, stream, first, None, count_max, bytes_max, self.watched)

    def is_news(self, page: Page) -> bool:
        """Whether there are new messages, or there will never be any."""
        return page.next_offset > page.offset or page.closed

    def answer(self, page: Page) -> None:
        """Send what is new, or that nothing is."""
        if page.next_offset > page.offset:
            send_page(self.exchange, page, self.query, [cursor_header(self.query)])
        else:
            send_nothing(self.exchange, page, self.query)

    async def answer_later(self, later: Deferred[Page]) -> None:
        """The same for what lies in the store."""
        page = await fetch(later)
        if isinstance(page, Refused):
            raise self.exchange.problem(page)
        answer_long_poll(self.exchange, self.query, self.group, page)
