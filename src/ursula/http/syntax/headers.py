"""The request headers that the server interprets: each may be sent once, in ASCII, with a valid value."""

from urllib.parse import quote

from ...model.commands import Producer
from ...model.limits import (
    PRODUCER_ID_BYTES_MAX,
    PRODUCER_NUMBER_MAX,
    RECORD_MAX,
    STREAM_SEQ_BYTES_MAX,
    TTL_SECONDS_MAX,
)
from ...model.text.attributes import Attributes, AttributesInvalid, read_attributes
from ...times import NotRfc3339, parse_time
from ..errors import Problem
from ..wire.headers import HeaderList, RequestHeaders
from .tokens import parse_number

OURS = frozenset(
    (
        "content-type",
        "if-match",
        "if-none-match",
        "if-range",
        "last-event-id",
        "prefer",
        "producer-epoch",
        "producer-id",
        "producer-seq",
        "range",
        "stream-attrs",
        "stream-closed",
        "stream-expires-at",
        "stream-fork-offset",
        "stream-fork-sub-offset",
        "stream-forked-from",
        "stream-incarnation",
        "stream-record-match",
        "stream-seq",
        "stream-ttl",
    )
)
IGNORED_BYTES_MAX = 1024
"""The longest list of ignored attributes: proxies reject long headers."""

_JOINED = frozenset(("if-none-match", "if-match"))


def take_headers(headers: RequestHeaders) -> dict[str, str]:
    """The headers of a request that the server interprets, by name in lower case."""
    taken = {}
    for name in OURS.intersection(headers.keys()):
        values = headers[name]
        if len(values) == 1:
            taken[name] = values[0]
        elif not values:
            raise Problem("header_invalid", f"the header {name} has non-ASCII characters")
        elif name in _JOINED:
            taken[name] = ", ".join(values)
        else:
            raise Problem("header_invalid", f"the header {name} was sent {len(values)} times")
    return taken


def wants_close(headers: dict[str, str]) -> bool:
    """Whether Stream-Closed is present and true; any other value counts as absent."""
    value = headers.get("stream-closed")
    return value is not None and value.strip().lower() == "true"


def parse_producer(headers: dict[str, str]) -> Producer | None:
    """The producer headers: all three, or none."""
    identity = headers.get("producer-id")
    epoch, seq = headers.get("producer-epoch"), headers.get("producer-seq")
    if identity is None and epoch is None and seq is None:
        return None
    if identity is None or epoch is None or seq is None:
        raise Problem(
            "producer_headers_invalid", "Producer-Id, Producer-Epoch and Producer-Seq must be sent together"
        )
    if not identity or len(identity) > PRODUCER_ID_BYTES_MAX:
        raise Problem("producer_headers_invalid", f"Producer-Id must have 1 to {PRODUCER_ID_BYTES_MAX} bytes")
    return Producer(
        identity, _producer_number("Producer-Epoch", epoch), _producer_number("Producer-Seq", seq)
    )


def _producer_number(name: str, text: str) -> int:
    number = parse_number(text)
    if number is None or number > PRODUCER_NUMBER_MAX:
        raise Problem("producer_headers_invalid", f"{name} must be a whole number from 0 to 2^53 - 1")
    return number


def parse_stream_seq(headers: dict[str, str]) -> str | None:
    """The writer's own sequence token, which is compared as bytes."""
    seq = headers.get("stream-seq")
    if seq is not None and len(seq) > STREAM_SEQ_BYTES_MAX:
        raise Problem("header_invalid", f"Stream-Seq must have at most {STREAM_SEQ_BYTES_MAX} bytes")
    return seq


def parse_record_match(headers: dict[str, str]) -> int | None:
    """The record that the next message must become."""
    text = headers.get("stream-record-match")
    if text is None:
        return None
    number = parse_number(text)
    if number is None or number > RECORD_MAX:
        raise Problem("header_invalid", "Stream-Record-Match must be a whole number up to 2^53 - 1")
    return number


def parse_attributes(text: bytes | str) -> Attributes:
    """The attributes in a body or a header."""
    try:
        return read_attributes(text)
    except AttributesInvalid as error:
        raise Problem("attributes_invalid", str(error)) from None


def parse_attributes_header(headers: dict[str, str]) -> Attributes | None:
    """The attributes for a new stream."""
    text = headers.get("stream-attrs")
    return None if text is None else parse_attributes(text)


def ignored_attributes(names: tuple[str, ...]) -> HeaderList:
    """The header that names the attributes that were not stored, if there are any.

    The names come from the client, so they are percent-encoded; those that do not fit are only counted.
    """
    if not names:
        return []
    listed: list[str] = []
    room = IGNORED_BYTES_MAX - len(f"+{len(names)}")
    for name in names:
        encoded = quote(name, safe="", errors="replace") or '""'
        room -= len(encoded) + len(", ")
        if room < 0:
            listed.append(f"+{len(names) - len(listed)}")
            break
        listed.append(encoded)
    return [("stream-attrs-ignored", ", ".join(listed))]


def parse_lifetime(headers: dict[str, str]) -> tuple[int | None, int | None]:
    """The TTL in seconds, or the fixed deadline in microseconds since 1970, or neither."""
    ttl, expires_at = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires_at is not None:
        raise Problem("invalid_ttl", "Stream-TTL and Stream-Expires-At cannot be combined")
    if ttl is not None:
        seconds = parse_number(ttl)
        if seconds is None or seconds > TTL_SECONDS_MAX:
            raise Problem("invalid_ttl", f"Stream-TTL must be whole seconds from 0 to {TTL_SECONDS_MAX}")
        return seconds, None
    return None, None if expires_at is None else _parse_deadline(expires_at)


def _parse_deadline(text: str) -> int:
    try:
        return parse_time(text)
    except NotRfc3339:
        message = "Stream-Expires-At must be an RFC 3339 time such as 2030-01-01T00:00:00Z"
        raise Problem("invalid_ttl", message) from None
    except ValueError as error:
        raise Problem("invalid_ttl", f"Stream-Expires-At is not a time: {error}") from None
