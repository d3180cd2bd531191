"""ULIDs: unique names that sort by the time at which they were made."""

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTERS = frozenset(_ALPHABET)
_LENGTH = 26


def new_ulid() -> str:
    """48 bits of milliseconds since 1970 and 80 random bits, as 26 characters."""
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))


def milliseconds_of(ulid: str) -> int:
    """When a ULID was made, in milliseconds since 1970."""
    number = 0
    for character in ulid:
        number = number << 5 | _ALPHABET.index(character)
    return number >> 80


def is_ulid(text: str) -> bool:
    """Whether a text is a ULID as `new_ulid` makes it."""
    return len(text) == _LENGTH and set(text) <= _CHARACTERS
