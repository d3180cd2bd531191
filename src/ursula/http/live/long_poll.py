"""Long-poll: respond as soon as there is something new, or after a while that there is nothing."""

import time
from typing import Generic, TypeVar

from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.outcomes import Refused
from ..exchange import Exchange
from ..store_problems import fetch_deferred
from ..syntax.query import ReadQuery
from ..syntax.tokens import cursor_at
from .connections import LiveRequest

P = TypeVar("P")


def cursor_header(query: ReadQuery) -> tuple[str, str]:
    """The header that keeps caches from giving two polls the same response."""
    return ("stream-cursor", cursor_at(time.time(), query.cursor))


class LongPoll(LiveRequest, Generic[P]):
    """A request that waits until a page after its offset has news, for a limited time."""

    def __init__(self, exchange: Exchange, group: GroupApi, watched: str, query: ReadQuery, page: P) -> None:
        super().__init__(exchange, group, watched)
        self.query = query
        self.page = page
        group.watchers.add(watched, self._on_change)
        wait = query.wait_seconds
        self.set_timer(exchange.services.reads.long_poll_seconds if wait is None else wait)

    def read(self) -> P | Refused | Deferred[P]:
        """The page after the offset, as of now."""
        raise NotImplementedError

    def has_news(self, page: P) -> bool:
        """Whether the page is worth a response before the time is up."""
        raise NotImplementedError

    def answer(self, page: P) -> None:
        """Respond with the page, or with 204 if it has nothing new."""
        raise NotImplementedError

    async def answer_fetched(self, page: P) -> None:
        """Respond with a page that came from the store; if it has nothing new, go on waiting after it."""
        raise NotImplementedError

    def _on_change(self) -> None:
        page = self.read()
        if isinstance(page, Deferred):
            self.stop()
            self.exchange.spawn(self._fetch(page))
        elif isinstance(page, Refused):
            self.stop()
            self.exchange.reply_problem(self.exchange.problem(page))
        elif self.has_news(page):
            self.stop()
            self.answer(page)

    async def _fetch(self, deferred: Deferred[P]) -> None:
        page = await fetch_deferred(deferred)
        self.exchange.check_group(self.group)
        if isinstance(page, Refused):
            raise self.exchange.problem(page)
        await self.answer_fetched(page)

    def on_timer(self) -> None:
        """The time is up: respond that there is nothing new."""
        self.stop()
        self.answer(self.page)

    def on_shutdown(self) -> None:
        """The server is stopping: respond as if the time were up."""
        self.on_timer()

    def stop(self) -> None:
        """Stop waiting."""
        self.group.watchers.remove(self.watched, self._on_change)
        super().stop()
