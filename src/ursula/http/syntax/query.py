"""The query parameters of a read: where to begin, how much to read, and whether to wait."""

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
    """What a read does at the tail."""

    NO = ""
    LONG_POLL = "long-poll"
    SSE = "sse"


class RecordQuery(NamedTuple):
    """Which messages, by record: from `first` on, or the last `last`; with neither, from the next one on."""

    first: int | None
    last: int | None
    count_max: int
    as_envelopes: bool


class ReadQuery(NamedTuple):
    """The parameters of a read. `offset` is None if there was none."""

    offset: int | None
    bytes_max: int
    live: Live
    cursor: str | None
    wait_seconds: float | None
    records: RecordQuery | None = None


def parse_read_query(query: str) -> ReadQuery:
    """The known parameters; others are ignored."""
    return _remembered(query) if len(query) <= REMEMBERED_CHARACTERS_MAX else _parse(query)


@lru_cache(maxsize=4096)
def _remembered(query: str) -> ReadQuery:
    return _parse(query)


def parse_query(query: str) -> dict[str, str]:
    """The parameters by name. If one is repeated, its first value counts; an offset must not be repeated."""
    given: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote_plus(name)
        if name == "offset" and name in given:
            raise Problem("invalid_offset", "offset was given more than once")
        given.setdefault(name, unquote_plus(value))
    return given


def parse_count(given: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    """A parameter that is a whole number within a range."""
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
        raise Problem("invalid_parameter", "a read takes an offset or a record, not both")
    return ReadQuery(
        offset=None if offset is None else parse_offset(offset),
        bytes_max=_bytes_max(given.get("max_bytes")),
        live=_live(given.get("live"), offset, records),
        cursor=given.get("cursor", given.get("stream-cursor")),
        wait_seconds=_wait_seconds(given),
        records=records,
    )


def _records(given: dict[str, str]) -> RecordQuery | None:
    record, last = given.get("record"), given.get("tail_records")
    view = given.get("record_view")
    if record is None and last is None:
        if view is not None or "max_records" in given:
            raise Problem("invalid_parameter", "max_records and record_view need record or tail_records")
        return None
    if record is not None and last is not None:
        raise Problem("invalid_parameter", "record and tail_records cannot be combined")
    if view not in (None, "envelope"):
        raise Problem("invalid_parameter", "record_view must be envelope")
    return RecordQuery(
        first=None if record in (None, "now") else parse_count(given, "record", 0, 0, RECORD_MAX),
        last=None if last is None else parse_count(given, "tail_records", 0, 0, RECORD_MAX),
        count_max=parse_count(given, "max_records", RECORD_MAX, 1, RECORD_MAX),
        as_envelopes=view is not None,
    )


def _live(text: str | None, offset: str | None, records: RecordQuery | None) -> Live:
    if text is None:
        return Live.NO
    try:
        live = Live(text)
    except ValueError:
        live = Live.NO
    if live is Live.NO:
        raise Problem("invalid_parameter", "live must be long-poll or sse")
    if offset is None and records is None and live is Live.LONG_POLL:
        raise Problem("invalid_offset", "a live read needs an offset")
    return live


def _bytes_max(text: str | None) -> int:
    if text is None:
        return READ_BYTES_DEFAULT
    number = parse_number(text)
    if not number:
        raise Problem("invalid_parameter", "max_bytes must be a whole number of at least 1")
    return min(number, READ_BYTES_MAX)


def _wait_seconds(given: dict[str, str]) -> float | None:
    for name, scale in (("timeout_ms", 1000.0), ("timeout", 1.0)):
        if name in given:
            number = parse_number(given[name])
            if number is None:
                raise Problem("invalid_parameter", f"{name} must be a whole number")
            return min(number / scale, WAIT_SECONDS_MAX)
    return None
