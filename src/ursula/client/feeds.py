"""A bucket's feed: every append and event of its streams, in one order."""

import base64
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .address import bucket_path
from .errors import OutcomeUnknown, Retryable
from .json_text import decode
from .results import BEGINNING, next_offset
from .retry import Attempts, perform
from .sse import Control, EventReader
from .steps import Answer, Flow, Item, Request, Steps, open_answer, receive, sleep
from .tail import LONG_POLL_SECONDS, SILENCE_SECONDS, Live
from .target import BucketTarget


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
        """Read from a line."""
        fields: dict[str, Any] = decode(text)
        encoded = fields.get("value_base64")
        value = fields.get("value") if encoded is None else base64.b64decode(encoded)
        return cls(fields["position"], fields["index"], fields["kind"], fields["stream"], value, fields, text)


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """All rows that were committed together. A reader that stores `next_offset` after it neither skips
    nor repeats."""

    rows: tuple[FeedRow, ...]
    next_offset: str


@dataclass(frozen=True, slots=True)
class FeedPage:
    """The entries of one answer, and where it leads."""

    entries: tuple[FeedEntry, ...]
    next_offset: str
    up_to_date: bool
    cursor: str | None
    incarnation: str

    @classmethod
    def of(cls, answer: Answer) -> "FeedPage":
        """Read from an answer to GET."""
        headers = answer.headers
        leads_to = next_offset(answer)
        lines = [line for line in answer.body.decode().split("\n") if line]
        return cls(
            entries=entries_of(lines, leads_to),
            next_offset=leads_to,
            up_to_date=answer.flag("stream-up-to-date"),
            cursor=headers.get("stream-cursor"),
            incarnation=headers.get("stream-incarnation", ""),
        )


def entries_of(lines: list[str], next_offset: str) -> tuple[FeedEntry, ...]:
    """Lines as entries; the last one leads to where the answer does."""
    rows = map(FeedRow.of, lines)
    groups = [tuple(group) for _, group in groupby(rows, key=lambda row: row.position)]
    entries = [FeedEntry(group, group[0].position) for group in groups]
    if entries:
        entries[-1] = FeedEntry(entries[-1].rows, next_offset)
    return tuple(entries)


@dataclass
class Place:
    """Where a reader of the feed is."""

    offset: str
    until: str | None = None
    max_bytes: int | None = None
    incarnation: str = ""
    cursor: str | None = None

    def request(self, target: BucketTarget, live: Live | None = None) -> Request:
        """A request for what comes next."""
        given = {
            "offset": self.offset,
            "until": self.until,
            "max_bytes": None if self.max_bytes is None else str(self.max_bytes),
            "live": live,
            "cursor": self.cursor if live else None,
            "timeout": str(LONG_POLL_SECONDS) if live == "long-poll" else None,
        }
        params = {name: value for name, value in given.items() if value is not None}
        headers = {"stream-incarnation": self.incarnation} if self.incarnation else {}
        wait = SILENCE_SECONDS if live else 0.0
        path = bucket_path(target.name)
        return Request("GET", path, params, headers, repeatable=True, wait_seconds=wait)

    def moved(self, page: FeedPage) -> None:
        """Go on behind a page."""
        self.offset = page.next_offset
        self.incarnation = page.incarnation or self.incarnation
        self.cursor = page.cursor or self.cursor


def feed_page(
    target: BucketTarget, offset: str = BEGINNING, *, until: str | None = None, max_bytes: int | None = None
) -> Steps[FeedPage]:
    """One page of the feed after an offset: "-1" is the beginning, "now" the end."""
    request = Place(offset, until, max_bytes).request(target)
    return FeedPage.of((yield from perform(request, target.patience)))


def feed(
    target: BucketTarget,
    offset: str = BEGINNING,
    *,
    until: str | None = None,
    live: Live | None = None,
) -> Flow[FeedEntry]:
    """Every entry after an offset, up to now; with `live`, then those that come, without end.

    Store `next_offset` of an entry that was dealt with, and resume from it.
    """
    patience = target.live_patience if live else target.patience
    place = Place(offset, until)
    while True:
        page = FeedPage.of((yield from perform(place.request(target), patience)))
        place.moved(page)
        yield from _give(page.entries)
        if page.up_to_date or (until is not None and page.next_offset >= until):
            break
    if live == "long-poll":
        yield from _poll(target, place)
    elif live == "sse":
        yield from _follow_events(target, place)


def _give(entries: tuple[FeedEntry, ...]) -> Flow[FeedEntry]:
    for entry in entries:
        yield Item(entry)


def _poll(target: BucketTarget, place: Place) -> Flow[FeedEntry]:
    while True:
        answer = yield from perform(place.request(target, "long-poll"), target.live_patience)
        page = FeedPage.of(answer)
        place.moved(page)
        yield from _give(page.entries)


def _follow_events(target: BucketTarget, place: Place) -> Flow[FeedEntry]:
    attempts = Attempts(target.live_patience)
    while True:
        heard = False
        try:
            yield from open_answer(place.request(target, "sse"))
            events, lines = EventReader(), list[str]()
            while piece := (yield from receive()):
                for event in events.feed(piece):
                    if event.name == "data":
                        lines += event.data.split("\n")
                    elif event.name == "control":
                        heard = True
                        attempts.succeeded()
                        control = Control.of(event)
                        place.offset = control.next_offset
                        place.cursor = control.cursor or place.cursor
                        yield from _give(entries_of(lines, place.offset))
                        lines = []
            if heard:
                continue
            failure: Retryable | OutcomeUnknown = Retryable("no_events", "the connection brought no events")
        except (Retryable, OutcomeUnknown) as lost:
            failure = lost
        yield from sleep(attempts.delay_after(failure))
