"""The query of a read: where from, how much, and whether to wait."""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus

from ...model.limits import READ_BYTES_DEFAULT, READ_BYTES_MAX, RECORD_MAX
from ..errors import Problem
from .tokens import parse_number, parse_offset

WAIT_SECONDS_MAX = 60.0
REMEMBERED_CHARACTERS_MAX = 200


class Live(Enum):
    """How a read goes on at the tail."""

    NO = ""
    LONG_POLL = "long-poll"
    SSE = "sse"


class RecordQuery(NamedTuple):
    """Which messages, by ordinal: from `first` on, or the last `last`; neither means from the next one on."""

    first: int | None
    last: int | None
    count_max: int
    as_envelopes: bool


class ReadQuery(NamedTuple):
    """The parameters of a read; `offset` None if none was given."""

    offset: int | None
    bytes_max: int
    live: Live
    cursor: str | None
    wait_seconds: float | None
    records: RecordQuery | None = None


def parse_read_query(query: str) -> ReadQuery:
    """The parameters that we know; others are ignored."""
    return _remembered(query) if len(query) <= REMEMBERED_CHARACTERS_MAX else _parse(query)


@lru_cache(maxsize=4096)
def _remembered(query: str) -> ReadQuery:
    return _parse(query)


def parse_query(query: str) -> dict[str, str]:
    """The parameters by name; of one given twice the first counts, but an offset must not be."""
    given: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote_plus(name)
        if name == "offset" and name in given:
            raise Problem("invalid_offset", "offset was given twice")
        given.setdefault(name, unquote_plus(value))
    return given


def parse_count(given: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    """A parameter that is a whole number between two others."""
    if name not in given:
        return default
    number = parse_number(given[name])
    if number is None or not least <= number <= most:
        raise Problem("invalid_parameter", f"{name} must be a whole number from {least} to {most}")
    return number


def _parse(query: str) -> ReadQuery:
    given = parse_query(query)
    offset = given.get("offset")
    records = _records(given)
    if records is not None and offset is not None:
        raise Problem("invalid_parameter", "a read is by offset or by record, not both")
    return ReadQuery(
        None if offset is None else parse_offset(offset),
        _bytes_max(given.get("max_bytes")),
        _live(given.get("live"), offset, records),
        given.get("cursor", given.get("stream-cursor")),
        _wait_seconds(given),
        records,
    )


def _records(given: dict[str, str]) -> RecordQuery | None:
    record, last = given.get("record"), given.get("tail_records")
    view = given.get("record_view")
    if record is None and last is None:
        if view is not None or "max_records" in given:
            raise Problem("invalid_parameter", "max_records and record_view need record or tail_records")
        return None
    if record is not None and last is not None:
        raise Problem("invalid_parameter", "record and tail_records exclude each other")
    if view not in (None, "envelope"):
        raise Problem("invalid_parameter", "record_view is envelope")
    return RecordQuery(
        None if record in (None, "now") else parse_count(given, "record", 0, 0, RECORD_MAX),
        None if last is None else parse_count(given, "tail_records", 0, 0, RECORD_MAX),
        parse_count(given, "max_records", RECORD_MAX, 1, RECORD_MAX),
        view is not None,
    )


def _live(text: str | None, offset: str | None, records: RecordQuery | None) -> Live:
    if text is None:
        return Live.NO
    try:
        live = Live(text)
    except ValueError:
        live = Live.NO
    if live is Live.NO:
        raise Problem("invalid_parameter", "live is long-poll or sse")
    if offset is None and records is None and live is Live.LONG_POLL:
        raise Problem("invalid_offset", "a live read needs an offset")
    return live


def _bytes_max(text: str | None) -> int:
    if text is None:
        return READ_BYTES_DEFAULT
    number = parse_number(text)
    if not number:
        raise Problem("invalid_parameter", "max_bytes must be a whole number from 1")
    return min(number, READ_BYTES_MAX)


def _wait_seconds(given: dict[str, str]) -> float | None:
    for name, scale in (("timeout_ms", 1000.0), ("timeout", 1.0)):
        if name in given:
            number = parse_number(given[name])
            if number is None:
                raise Problem("invalid_parameter", f"{name} must be a whole number")
            return min(number / scale, WAIT_SECONDS_MAX)
    return None
