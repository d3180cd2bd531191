"""Server-sent events: how they are encoded, and how the pages of a stream or a feed become events."""

import time
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ...engine.reads.deferred import Deferred
from ...model.outcomes import RecordPage, Refused
from ..certainty import Contact
from ..syntax.tokens import cursor_at, format_offset
from ..wire.request import BodyChunk

P = TypeVar("P")


class Event(NamedTuple):
    """Encoded events, as a part of the response, and the offset after them."""

    chunk: BodyChunk
    next_offset: int
    is_at_tail: bool
    is_last: bool


class Incomplete(NamedTuple):
    """After the offset there is only the beginning of a character."""


Found = Event | Refused | Incomplete | None
"""The next event, or the reason why the reader may not continue, or None if there is nothing to send yet."""

FoundLater = Deferred[Event | Incomplete | None]


class PageEvents(Generic[P]):
    """A stream or feed as events. All clients that follow the same `key` share a fan-out.

    The last encoded page is kept, so that all readers at its offset are sent the same bytes. The fan-out also
    remembers events, by the cursor that a client sent and only while it wakes its subscribers, which saves
    the read as well. The memo here is for readers that the fan-out's cannot serve: those with other cursors,
    which mostly lead to the same cursor in the response; those that continue once their client has caught up,
    or once their page has come from the store; and those that have just connected.
    """

    def __init__(self, key: str, watched: str, contact: Contact | None) -> None:
        """`contact` is that of a node that answers reads from its own state."""
        self.key = key
        self.watched = watched
        self._contact = contact
        self._encoded: tuple[tuple[object, ...], Event] | None = None

    @property
    def is_certain(self) -> bool:
        """Whether an event at the tail may say so."""
        return self._contact is None or self._contact.problem is None

    def read(self, offset: int) -> P | Refused | Deferred[P]:
        """The page after an offset."""
        raise NotImplementedError

    def page_key(self, page: P, offset: int) -> tuple[object, ...] | None:
        """The key, apart from the cursor, of the encoded page; None if it has nothing after the offset."""
        raise NotImplementedError

    def encode(self, page: P, cursor: str, is_final: bool) -> Event | None:
        """The events of a page; None if it has only the beginning of a character and is not final."""
        raise NotImplementedError

    def encode_up_to_date(self, offset: int, cursor: str) -> bytes | None:
        """A control event for a new reader that has everything; None if `find` has something for it."""
        raise NotImplementedError

    def find(self, offset: int, cursor: str | None, is_final: bool = False) -> Found | FoundLater:
        """The next event; None if there is nothing yet. `is_final`: nothing is held back."""
        page = self.read(offset)
        if isinstance(page, Deferred):
            return Deferred(partial(self.fetch, page, offset, cursor, is_final))
        return self.event_of(page, offset, cursor, is_final)

    async def fetch(self, deferred: Deferred[P], offset: int, cursor: str | None, is_final: bool) -> Found:
        """The next event, from a page in the store."""
        return self.event_of(await deferred.get(), offset, cursor, is_final)

    def event_of(self, page: P | Refused, offset: int, cursor: str | None, is_final: bool) -> Found:
        """The event for a page that was read."""
        if isinstance(page, Refused):
            return page
        key = self.page_key(page, offset)
        if key is None:
            return None
        answer_cursor = cursor_at(time.time(), cursor)
        known, key = self._encoded, (answer_cursor, offset, self.is_certain, *key)
        if known is not None and known[0] == key:
            return known[1]
        event = self.encode(page, answer_cursor, is_final)
        if event is None:
            return Incomplete()
        self._encoded = (key, event)
        return event


def encode_data(lines: list[bytes]) -> bytes:
    """A data event of these lines."""
    encoded = [b"event: data\n"]
    for line in lines:
        # A reader drops one space after the colon, so a line that begins with one needs another.
        encoded.append(b"data: %b\n" % line if line.startswith(b" ") else b"data:%b\n" % line)
    encoded.append(b"\n")
    return b"".join(encoded)


def encode_control(offset: int, cursor: str, up_to_date: bool, is_last: bool, page: object = None) -> bytes:
    """A control event. Its id lets a browser's EventSource resume. A page of records adds its records."""
    text = format_offset(offset)
    fields: dict[str, str | bool | int] = {"streamNextOffset": text}
    if not is_last:
        fields["streamCursor"] = cursor
    if up_to_date:
        fields["upToDate"] = True
    if is_last:
        fields["streamClosed"] = True
    if isinstance(page, RecordPage):
        fields["streamFirstRecord"] = page.first_record
        fields["streamNextRecord"] = page.record + len(page.chunks)
    return b"event: control\ndata:" + msgspec.json.encode(fields) + f"\nid: {text}\n\n".encode()
