"""The query of a read: where from, how much, and whether to wait."""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_plus

from ..model.limits import READ_BYTES_DEFAULT, READ_BYTES_MAX
from .errors import Problem
from .tokens import parse_number, parse_offset

WAIT_SECONDS_MAX = 60.0
REMEMBERED_CHARACTERS_MAX = 200


class Live(Enum):
    """How a read goes on at the tail."""

    NO = ""
    LONG_POLL = "long-poll"
    SSE = "sse"


class ReadQuery(NamedTuple):
    """The parameters of a read; `offset` None if none was given."""

    offset: int | None
    bytes_max: int
    live: Live
    cursor: str | None
    wait_seconds: float | None


def parse_read_query(query: str) -> ReadQuery:
    """The parameters that we know; others are ignored."""
    return _remembered(query) if len(query) <= REMEMBERED_CHARACTERS_MAX else _parse(query)


@lru_cache(maxsize=4096)
def _remembered(query: str) -> ReadQuery:
    return _parse(query)


def _parse(query: str) -> ReadQuery:
    given: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote_plus(name)
        if name == "offset" and name in given:
            raise Problem("invalid_offset", "offset was given twice")
        given.setdefault(name, unquote_plus(value))
    offset = given.get("offset")
    return ReadQuery(
        None if offset is None else parse_offset(offset),
        _bytes_max(given.get("max_bytes")),
        _live(given.get("live"), offset),
        given.get("cursor", given.get("stream-cursor")),
        _wait_seconds(given),
    )


def _live(text: str | None, offset: str | None) -> Live:
    if text is None:
        return Live.NO
    try:
        live = Live(text)
    except ValueError:
        live = Live.NO
    if live is Live.NO:
        raise Problem("invalid_parameter", "live is long-poll or sse")
    if offset is None and live is Live.LONG_POLL:
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
