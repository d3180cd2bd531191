"""The attributes of a stream as canonical JSON: the same attributes are the same bytes."""

import json
from typing import Any, NamedTuple, NoReturn

from ..limits import ATTRIBUTES_BYTES_MAX

NO_ATTRIBUTES = b"{}"

_FIELDS: dict[str, type] = {"title": str, "metadata": dict}


class AttributesInvalid(Exception):
    """The text is not a valid object of attributes; the message says why."""


class Attributes(NamedTuple):
    """Attributes as they are stored, and the names of the fields that were ignored."""

    stored: bytes
    ignored: tuple[str, ...]


def read_attributes(text: bytes | str) -> Attributes:
    """The attributes in a JSON text: known fields only, keys sorted, no spaces."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        return Attributes(_encode(value), tuple(name for name in value if name not in _FIELDS))
    except RecursionError:
        raise AttributesInvalid("the attributes are nested too deeply") from None
    except ValueError as error:  # also raised for text that is not UTF-8 and for numbers that are too large
        raise AttributesInvalid(f"the attributes are not valid JSON: {error}") from None


def _encode(value: Any) -> bytes:
    if not isinstance(value, dict):
        raise AttributesInvalid("the attributes must be a JSON object")
    kept = {name: value[name] for name in _FIELDS if name in value}
    for name, field in kept.items():
        if not isinstance(field, _FIELDS[name]):
            expected = "a string" if _FIELDS[name] is str else "an object"
            raise AttributesInvalid(f"{name} must be {expected}")
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    encoded = text.encode()
    if len(encoded) > ATTRIBUTES_BYTES_MAX:
        raise AttributesInvalid(
            f"the attributes have {len(encoded)} bytes, but only {ATTRIBUTES_BYTES_MAX} are allowed"
        )
    return encoded


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
