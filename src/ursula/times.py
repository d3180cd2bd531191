"""Times as text (RFC 3339) and as numbers: microseconds since 1970, in UTC.

`msgspec` parses such times too, but it also accepts a space for the `T` and offsets without a colon, and it
rounds where this truncates: the deadline that a client asked for must not depend on the parser.
"""

import re
from datetime import UTC, datetime

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotRfc3339(ValueError):
    """The text does not have the form of an RFC 3339 time."""


def parse_time(text: str) -> int:
    """A time in microseconds since 1970. Raises ValueError if the text is not a time that UTC can express."""
    if _RFC3339.fullmatch(text) is None:
        raise NotRfc3339(f"{text!r} is not an RFC 3339 time")
    try:
        since = datetime.fromisoformat(text.upper()).astimezone(UTC) - _EPOCH
    except OverflowError as error:
        raise ValueError(str(error)) from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def format_time(microseconds: int, timespec: str = "auto") -> str:
    """A time as text in UTC. `timespec` is that of `datetime.isoformat`: "auto" omits a fraction of zero."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=fraction)
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")
