"""Digests of objects, and the one that a small JSON object carries itself, as its last field.

That one is over all bytes before the field, and the object stays JSON for every reader. To check it, take the
bytes before the last `,` and line break that lead to `"checksum"`: their digest is what the field says.
Needs the standard library only, since executors of Spark may have nothing else.
"""

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_END = b"\n}\n"
_NAME = b'"checksum"'
_LAST_FIELD = re.compile(rb',\n "checksum": "(sha256:[0-9a-f]{64})"\n}\n\Z')


def digest_of(data: "ReadableBuffer") -> str:
    """What tells these bytes from all others."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def with_checksum(text: bytes) -> bytes:
    """A JSON object, indented by one space and with at least one field, with its checksum."""
    if not text.endswith(_END):
        raise ValueError("the text does not end as an indented JSON object does")
    body = text.removesuffix(_END)
    return body + f',\n "checksum": "{digest_of(body)}"'.encode() + _END


def has_checksum(data: bytes) -> bool:
    """Whether an object ends with a checksum; ValueError if that is none, or of other bytes."""
    found = _LAST_FIELD.search(data)
    if found is None:
        if _NAME in data:
            raise ValueError("its checksum is damaged")
        return False
    if digest_of(data[: found.start()]).encode() != found[1]:
        raise ValueError("its checksum is of other bytes")
    return True
