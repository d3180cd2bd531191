"""multipart/mixed, decoded part by part from pieces that may be cut anywhere."""

import re
from dataclasses import dataclass

import httpx

from ..errors import InvalidAnswer

_BOUNDARY = re.compile(r'boundary=(?:"([^"]+)"|([^\s;]+))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyPart:
    """One part of a multipart body."""

    headers: httpx.Headers
    body: bytes


class PartReader:
    """Takes pieces of a multipart body and returns the complete parts."""

    def __init__(self, content_type: str) -> None:
        boundary = _BOUNDARY.search(content_type)
        if boundary is None:
            raise InvalidAnswer(f"not a multipart body: there is no boundary in {content_type!r}")
        self._delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode()
        # As if the body began with a line break, so that the first delimiter is like the others.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self._in_part = False
        self.ended = False

    def feed(self, piece: bytes) -> list[BodyPart]:
        """The parts that this piece completes."""
        self._buffer += piece
        parts = []
        while not self.ended:
            at = self._buffer.find(self._delimiter, self._searched)
            after = at + len(self._delimiter)
            if at < 0:
                self._searched = max(0, len(self._buffer) - len(self._delimiter))
                break
            line_end = self._buffer.find(b"\r\n", after)
            if not self._buffer.startswith(b"--", after) and line_end < 0:
                self._searched = at
                break
            if self._in_part:
                parts.append(_part(bytes(self._buffer[:at])))
            self._in_part = True
            self.ended = self._buffer.startswith(b"--", after)
            # The line break after a delimiter may be the one before an empty list of headers.
            del self._buffer[: len(self._buffer) if self.ended else line_end]
            self._searched = 0
        return parts


def _part(raw: bytes) -> BodyPart:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.split(b"\r\n") if line]
    return BodyPart(httpx.Headers([(name.strip(), value.strip()) for name, _, value in lines]), body)
