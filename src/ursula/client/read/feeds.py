"""A bucket's feed: every append and event of its streams, in one order."""

import base64
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..address import bucket_path
from ..connection.retry import perform
from ..connection.steps import Answer, Flow, Item, Request, Steps, without_none
from ..formats.event_stream import Control
from ..formats.json_text import decode
from ..results import BEGINNING, next_offset
from ..target import BucketTarget
from .live import LONG_POLL_SECONDS, SILENCE_SECONDS, Live, Wait, follow_live


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One line of the feed. `value` is a decoded JSON value, text, or bytes; `text` is the line itself."""

    position: str
    index: int
    kind: str
    stream: str
    value: Any
    fields: dict[str, Any]
    text: str

    @classmethod
    def of(cls, text: str) -> "FeedRow":
        """Read a line of the feed."""
        fields: dict[str, Any] = decode(text)
        encoded = fields.get("value_base64")
        value = fields.get("value") if encoded is None else base64.b64decode(encoded)
        return cls(
            position=fields["position"],
            index=fields["index"],
            kind=fields["kind"],
            stream=fields["stream"],
            value=value,
            fields=fields,
            text=text,
        )


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """All rows that were committed together.

    A reader that saves `next_offset` after each entry neither skips nor repeats one when it resumes.
    """

    rows: tuple[FeedRow, ...]
    next_offset: str


@dataclass(frozen=True, slots=True)
class FeedPage:
    """The entries of one response, and the offset after them."""

    entries: tuple[FeedEntry, ...]
    next_offset: str
    up_to_date: bool
    cursor: str | None
    incarnation: str

    @classmethod
    def of(cls, answer: Answer) -> "FeedPage":
        """Read the response to a GET."""
        headers = answer.headers
        end = next_offset(answer)
        lines = [line for line in answer.body.decode().split("\n") if line]
        return cls(
            entries=entries_of(lines, end),
            next_offset=end,
            up_to_date=answer.flag("stream-up-to-date"),
            cursor=headers.get("stream-cursor"),
            incarnation=headers.get("stream-incarnation", ""),
        )


def entries_of(lines: list[str], next_offset: str) -> tuple[FeedEntry, ...]:
    """Lines grouped into entries; the last one ends at the offset after them all."""
    rows = map(FeedRow.of, lines)
    groups = [tuple(group) for _, group in groupby(rows, key=lambda row: row.position)]
    entries = [FeedEntry(group, group[0].position) for group in groups]
    if entries:
        entries[-1] = FeedEntry(entries[-1].rows, next_offset)
    return tuple(entries)


def feed_page(
    target: BucketTarget, offset: str = BEGINNING, *, until: str | None = None, max_bytes: int | None = None
) -> Steps[FeedPage]:
    """One page of the feed after an offset: "-1" is the beginning, "now" the end."""
    request = FeedSource(target, offset, until, max_bytes).request()
    return FeedPage.of((yield from perform(request, target.patience)))


def feed(
    target: BucketTarget,
    offset: str = BEGINNING,
    *,
    until: str | None = None,
    live: Live | None = None,
) -> Flow[FeedEntry]:
    """Every entry after an offset, up to now; with `live`, then new ones as they arrive, without end.

    Save `next_offset` of the last entry that was processed, and resume from it.
    """
    patience = target.live_patience if live else target.patience
    source = FeedSource(target, offset, until)
    while True:
        page = FeedPage.of((yield from perform(source.request(), patience)))
        yield from source.take_page(page)
        if page.up_to_date or (until is not None and page.next_offset >= until):
            break
    if live is not None:
        yield from follow_live(source, live, patience, Wait(None))


class FeedSource:
    """The feed of a bucket, and how far it has been read."""

    closed = False
    """A feed never ends."""

    def __init__(
        self, target: BucketTarget, offset: str, until: str | None = None, max_bytes: int | None = None
    ) -> None:
        self._target = target
        self._offset = offset
        self._until = until
        self._max_bytes = max_bytes
        self._incarnation = ""
        self._cursor: str | None = None

    def request(self, live: Live | None = None) -> Request:
        """A request for the entries after the current offset; with `live`, it waits for them."""
        params = {
            "offset": self._offset,
            "until": self._until,
            "max_bytes": None if self._max_bytes is None else str(self._max_bytes),
            "live": live,
            "cursor": self._cursor if live else None,
            "timeout": str(LONG_POLL_SECONDS) if live == "long-poll" else None,
        }
        return Request(
            "GET",
            bucket_path(self._target.name),
            without_none(params),
            {"stream-incarnation": self._incarnation} if self._incarnation else {},
            repeatable=True,
            wait_seconds=SILENCE_SECONDS if live else 0.0,
        )

    def live_request(self, live: Live, limit: float | None) -> Request:
        """A request that waits for entries. A feed has no timeout, so there is no limit."""
        return self.request(live)

    def take_answer(self, answer: Answer) -> Flow[FeedEntry]:
        """Pass the entries of a response to the caller, and move the offset."""
        yield from self.take_page(FeedPage.of(answer))

    def take_page(self, page: FeedPage) -> Flow[FeedEntry]:
        """Pass the entries of a page to the caller, and move the offset."""
        self._incarnation = page.incarnation or self._incarnation
        yield from self._take(page.entries, page.next_offset, page.cursor)

    def take_events(self, data: list[bytes], control: Control) -> Flow[FeedEntry]:
        """Pass the entries in data events to the caller, and move the offset."""
        lines = [line for content in data for line in content.decode().split("\n")]
        yield from self._take(entries_of(lines, control.next_offset), control.next_offset, control.cursor)

    def _take(self, entries: tuple[FeedEntry, ...], next_offset: str, cursor: str | None) -> Flow[FeedEntry]:
        self._offset = next_offset
        self._cursor = cursor or self._cursor
        for entry in entries:
            yield Item(entry)
