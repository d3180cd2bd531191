"""Escapes characters that could move the cursor, hide text or fake a line on a terminal."""

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}]")
_UNPRINTABLE_IN_JSON = re.compile(f"[\x7f-\x9f\u2028\u2029{_BIDI}]")
"""Other control characters occur only between the tokens of a JSON text; inside strings they are escaped."""


def printable(text: str) -> str:
    """The text on one line, with all invisible characters escaped."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(text: str) -> str:
    """JSON of the same values, with all invisible characters escaped."""
    return _UNPRINTABLE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
