"""Read a JSON stream by record number."""

from dataclasses import dataclass
from typing import Any, Literal

from ..connection.retry import perform
from ..connection.steps import Answer, Flow, Item, Request, Steps
from ..formats.json_text import decode
from ..results import Chunk
from ..target import StreamTarget, get
from .live import LONG_POLL_SECONDS, SILENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON message and its number, which counts from 0 and is never reused."""

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
    """The records from a number on, or the `last` ones; with `live`, then new ones as they arrive.

    `max_records` limits each response, not the total. Ends at the tail, or with `live` when the stream is
    closed. To resume, start from the number after the last record.
    """
    patience = target.live_patience if live else target.patience
    params = {"record_view": "envelope"}
    if max_records is not None:
        params["max_records"] = str(max_records)
    where = {"record": str(start)} if last is None else {"tail_records": str(last)}
    incarnation, cursor, waiting = "", None, False
    while True:
        asked = params | where
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
            where = {"record": str(found[-1].number + 1)}
        elif (next_record := answer.number("stream-record-next")) is not None:
            where = {"record": str(next_record)}
        incarnation = answer.headers.get("stream-incarnation", incarnation)
        cursor = answer.headers.get("stream-cursor", cursor)
        waiting = answer.flag("stream-up-to-date") or (waiting and not found)


def last_lines(target: StreamTarget, count: int) -> Steps[Chunk]:
    """The last `count` records as lines of JSON text, and the offset after them."""
    answer = yield from get(target, target.address.path, {"tail_records": str(count)})
    return Chunk.of(answer, target.path)


def _records(answer: Answer) -> list[Record]:
    lines = [line for line in answer.body.split(b"\n") if line]
    return [Record(fields["record"], fields["value"]) for fields in map(decode, lines)]
