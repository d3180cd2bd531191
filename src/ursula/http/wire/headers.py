"""The headers of a request and the head of a response."""

from email.utils import formatdate
from http import HTTPStatus

HeaderList = list[tuple[str, str]]

_NAMES_MAX = 1024
_NAME_BYTES_MAX = 64
_names: dict[bytes, str] = {}
"""Header names as they were sent, and in lower case: clients send the same few again and again."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_NO_CONTENT = _STATUS_LINES[204]


def header_name(raw: bytes) -> str:
    """A header name in lower case. llhttp accepts only ASCII in it."""
    name = _names.get(raw)
    if name is None:
        name = raw.decode("ascii").lower()
        if len(_names) < _NAMES_MAX and len(raw) <= _NAME_BYTES_MAX:
            _names[bytes(raw)] = name
    return name


class RequestHeaders(dict[str, list[str]]):
    """The values of each header by its name in lower case.

    A value that is not ASCII is left out. A header that has only such values has an empty list, which
    distinguishes it from a missing header.
    """

    __slots__ = ()

    def add(self, name: str, raw: bytes) -> None:
        """Add a header line."""
        values = self.setdefault(name, [])
        if raw.isascii():
            values.append(raw.decode("ascii").strip(" \t"))

    def first(self, name: str) -> str | None:
        """The first value of a header."""
        values = self.get(name)
        return values[0] if values else None


def render(headers: HeaderList) -> str:
    """Header lines as they are sent."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


class AnswerHeads:
    """Encodes the heads of responses. `tick` keeps their date current."""

    def __init__(self) -> None:
        self.tick()

    def tick(self) -> None:
        """Update the date. Called at least once a second."""
        self._date = f"date: {formatdate(usegmt=True)}\r\n"

    def encode(self, status: int, common: str, headers: HeaderList, framing: str) -> bytes:
        """The status line, the headers, and the framing of the body."""
        lines = f"{_STATUS_LINES[status]}{common}{render(headers)}{self._date}{framing}\r\n"
        return lines.encode("latin-1")

    def no_content(self, lines: str, close: str) -> bytes:
        """A complete response without a body."""
        return f"{_NO_CONTENT}{lines}{self._date}{close}\r\n".encode("latin-1")
