"""Digests of objects, and the checksum that a small JSON object has as its last field.

The checksum covers all bytes before the field, and the object is still plain JSON for any reader. To verify
it, take the bytes before the `,` and line break that precede the last `"checksum"`: the field has their
digest. Uses the standard library only, since Spark executors may have nothing else.
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
    """The SHA-256 of these bytes, with its name in front."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def with_checksum(text: bytes) -> bytes:
    """A JSON object, indented by one space and with at least one field, with its checksum."""
    if not text.endswith(_END):
        raise ValueError("the text does not end like an indented JSON object")
    body = text.removesuffix(_END)
    return body + f',\n "checksum": "{digest_of(body)}"'.encode() + _END


def has_checksum(data: bytes) -> bool:
    """Whether an object ends with a checksum; ValueError if the checksum is damaged or does not match."""
    found = _LAST_FIELD.search(data)
    if found is None:
        if _NAME in data:
            raise ValueError("its checksum is damaged")
        return False
    if digest_of(data[: found.start()]).encode() != found[1]:
        raise ValueError("its checksum does not match its bytes")
    return True
