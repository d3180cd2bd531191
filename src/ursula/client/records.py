"""Read a JSON stream by the numbers of its records."""

from dataclasses import dataclass
from typing import Any, Literal

from .json_text import decode
from .results import Chunk
from .retry import perform
from .steps import Answer, Flow, Item, Request, Steps
from .tail import LONG_POLL_SECONDS, SILENCE_SECONDS
from .target import StreamTarget, get


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON message and its number, from 0, which is never used again."""

    number: int
    value: Any


def records(
    target: StreamTarget,
    start: int | Literal["now"] = 0,
    *,
    last: int | None = None,
    max_records: int | None = None,
    live: bool = False,
) -> Flow[Record]:
    """The records from a number on, or the `last` so many; with `live`, then those that come.

    `max_records` limits one answer, not all of them. It ends at the tail, or with `live` when the stream
    is closed. Resume from the number after the last one.
    """
    patience = target.live_patience if live else target.patience
    params = {"record_view": "envelope"}
    if max_records is not None:
        params["max_records"] = str(max_records)
    place = {"record": str(start)} if last is None else {"tail_records": str(last)}
    incarnation, cursor, waiting = "", None, False
    while True:
        asked = params | place
        if waiting:
            asked |= {"live": "long-poll", "timeout": str(LONG_POLL_SECONDS)}
            asked |= {} if cursor is None else {"cursor": cursor}
        headers = {"stream-incarnation": incarnation} if incarnation else {}
        path, wait = target.address.path, SILENCE_SECONDS if waiting else 0.0
        request = Request("GET", path, asked, headers, repeatable=True, wait_seconds=wait)
        answer = yield from perform(request, patience)
        found = _records(answer)
        for record in found:
            yield Item(record)
        if answer.flag("stream-closed") or (answer.flag("stream-up-to-date") and not live):
            return
        if found:
            place = {"record": str(found[-1].number + 1)}
        elif (next_record := answer.number("stream-record-next")) is not None:
            place = {"record": str(next_record)}
        incarnation = answer.headers.get("stream-incarnation", incarnation)
        cursor = answer.headers.get("stream-cursor", cursor)
        waiting = answer.flag("stream-up-to-date") or (waiting and not found)


def last_lines(target: StreamTarget, count: int) -> Steps[Chunk]:
    """The last so many records as lines of JSON text, and the offset after them."""
    answer = yield from get(target, target.address.path, {"tail_records": str(count)})
    return Chunk.of(answer, target.path)


def _records(answer: Answer) -> list[Record]:
    lines = [line for line in answer.body.split(b"\n") if line]
    return [Record(fields["record"], fields["value"]) for fields in map(decode, lines)]
