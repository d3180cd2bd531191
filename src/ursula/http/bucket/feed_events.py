"""A feed as server-sent events: a data and a control event for each log entry."""

import time

from ...engine.group.watchers import bucket_key
from ...engine.interface import GroupApi
from ...engine.reads.deferred import Deferred
from ...model.offsets import BEGINNING
from ...model.outcomes import FeedPage, Refused
from ..exchange import Exchange
from ..live.events import Event, Found, PageEvents, encode_control, encode_data
from ..syntax.tokens import cursor_at
from ..wire.request import BodyChunk

EVENT_BYTES = 256 * 1024
"""About how many bytes are encoded and sent to a follower at a time."""


class FeedEvents(PageEvents[FeedPage]):
    """A bucket as events."""

    def __init__(self, group: GroupApi, exchange: Exchange) -> None:
        key = bucket_key(exchange.target.bucket)
        super().__init__(key, key, exchange.services.contact)
        self._group = group
        self._bucket = exchange.target.bucket
        self._bytes_max = min(EVENT_BYTES, exchange.services.reads.sse_bytes)
        self._lines = exchange.services.feed_lines

    def read(self, offset: int) -> FeedPage | Refused | Deferred[FeedPage]:
        """The page after a position."""
        return self._read(offset, self._bytes_max)

    def _read(self, offset: int, bytes_max: int) -> FeedPage | Refused | Deferred[FeedPage]:
        after = None if offset == BEGINNING else offset
        return self._group.read_feed(self._bucket, after, None, bytes_max)

    def page_key(self, page: FeedPage, offset: int) -> tuple[object, ...] | None:
        """The key of the encoded page; None if nothing happened in the bucket."""
        return (page.next_position, page.tail) if page.entries else None

    async def fetch(
        self, deferred: Deferred[FeedPage], offset: int, cursor: str | None, is_final: bool
    ) -> Found:
        """The next event, from a page in the store; only a control event if the page is empty."""
        page = await deferred.get()
        if isinstance(page, FeedPage) and not page.entries and page.next_position > offset:
            position = page.next_position
            control = encode_control(position, cursor_at(time.time(), cursor), self.is_certain, False)
            return Event(BodyChunk(control), position, True, False)
        return self.event_of(page, offset, cursor, is_final)

    def encode_up_to_date(self, offset: int, cursor: str) -> bytes | None:
        """A control event for a reader that has everything."""
        page = self._read(offset, 1)
        if isinstance(page, Refused | Deferred) or page.entries:
            return None
        return encode_control(page.next_position, cursor, self.is_certain, False)

    def encode(self, page: FeedPage, cursor: str, is_final: bool) -> Event:
        """The entries of a page as events."""
        encoded = []
        is_at_tail = page.next_position >= page.tail
        last = page.entries[-1].position
        for entry in page.entries:
            position = page.next_position if entry.position == last else entry.position
            up_to_date = entry.position == last and is_at_tail and self.is_certain
            encoded.append(encode_data(self._lines.recent(self._bucket, entry)))
            encoded.append(encode_control(position, cursor, up_to_date, False))
        return Event(BodyChunk(*encoded), page.next_position, is_at_tail, False)
