"""The tokens of the protocol as text: offsets, incarnations, entity tags, cursors.

Only ASCII digits are digits: Python's int() accepts more than the protocol does.
"""

import random
import re

from ...model.commands import IfMatch, Version
from ...model.offsets import BEGINNING, TAIL
from ..errors import Problem

_OFFSET = re.compile(r"[0-9]{1,20}|[0-9]{16}_[0-9]{16}")
_OFFSET_MAX = 2**63 - 1
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_TAG = re.compile(r'(?:W/)?"([^"]*)"')
_STATE = re.compile(r"([0-9]+)-([0-9]+-[0-9]+-[0-9]+):[0-9]+:([0-9]+)(:c)?")

OFFSET_DIGITS = 20
CURSOR_EPOCH_SECONDS = 1_728_432_000  # 2024-10-09T00:00:00Z
CURSOR_INTERVAL_SECONDS = 20


def parse_offset(text: str) -> int:
    """An offset as a client sends it: -1, now, 1 to 20 digits, or two groups of 16."""
    if text == "-1":
        return BEGINNING
    if text == "now":
        return TAIL
    if _OFFSET.fullmatch(text) is None:
        raise Problem("invalid_offset", "an offset is -1, now, or digits that the server has sent")
    return min(int(text.rpartition("_")[2]), _OFFSET_MAX)


def format_offset(offset: int) -> str:
    """An offset as the server sends it: 20 digits, so that offsets sort as text."""
    return str(offset).zfill(OFFSET_DIGITS)


def parse_number(text: str) -> int | None:
    """A decimal number without sign, leading zeros or other characters; None for any other text."""
    return int(text) if len(text) <= 30 and _NUMBER.fullmatch(text) else None


def format_tag(incarnation: str, start: int, end: int, closed: bool) -> str:
    """The entity tag of a range of a stream, or (start = end = tail) of its state."""
    return f'"{incarnation}:{start}:{end}:c"' if closed else f'"{incarnation}:{start}:{end}"'


def tag_matches(header: str, tag: str) -> bool:
    """Whether an If-None-Match header (a list, weak tags and * included) names the tag."""
    if header.strip() == "*":
        return True
    opaque = tag.strip('"')
    return opaque in _TAG.findall(header)


def parse_if_match(header: str, generation: int) -> IfMatch:
    """The states that an If-Match header allows. A foreign tag, or one from before a restore, allows none."""
    if header.strip() == "*":
        return IfMatch((), any_version=True)
    versions = []
    for tag in _TAG.findall(header):
        state = _STATE.fullmatch(tag)
        if state is not None and int(state[1]) == generation:
            versions.append(Version(state[2], int(state[3]), state[4] is not None))
    return IfMatch(tuple(versions))


def parse_incarnation(header: str, generation: int) -> str:
    """The incarnation that the header names. One from before a restore becomes one that no stream has."""
    prefix = f"{generation}-"
    return header[len(prefix) :] if header.startswith(prefix) else ""


def cursor_at(now_seconds: float, echoed: str | None) -> str:
    """The cursor of a live response: the current interval, or a later one than the client already has."""
    interval = int(now_seconds - CURSOR_EPOCH_SECONDS) // CURSOR_INTERVAL_SECONDS
    known = parse_number(echoed) if echoed is not None else None
    if known is not None and known >= interval:
        interval = known + max(1, random.randint(1, 3600) // CURSOR_INTERVAL_SECONDS)
    return str(interval)
