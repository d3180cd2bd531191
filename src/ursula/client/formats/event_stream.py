"""Server-sent events, decoded from pieces that may be cut anywhere."""

import re
from dataclasses import dataclass

from ..errors import InvalidAnswer
from .json_text import decode

_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, and its data lines joined."""

    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Control:
    """A control event: the offset after the data before it."""

    next_offset: str
    cursor: str | None
    up_to_date: bool
    closed: bool

    @classmethod
    def of(cls, event: ServerEvent) -> "Control":
        """Read the data of an event."""
        fields = decode(event.data)
        next_offset = fields.get("streamNextOffset") if isinstance(fields, dict) else None
        if not isinstance(next_offset, str):
            raise InvalidAnswer(f"a control event has no offset: {event.data}")
        closed = bool(fields.get("streamClosed"))
        up_to_date = closed or bool(fields.get("upToDate"))
        return cls(next_offset, fields.get("streamCursor"), up_to_date, closed)


class EventReader:
    """Takes pieces of an event stream and returns the complete events."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._name = ""
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes."""
        self._pieces.append(piece)
        # A carriage return at the end may be half of a line break: the next piece decides.
        if not _LINE_END.search(piece, 0, len(piece) - piece.endswith(b"\r")) and not self._half_ended():
            return []
        data = b"".join(self._pieces)
        kept = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data[:-1] if kept else data)
        self._pieces = [rest + b"\r" if kept else rest]
        return [event for line in lines if (event := self._take(line)) is not None]

    def _half_ended(self) -> bool:
        return len(self._pieces) > 1 and self._pieces[-2].endswith(b"\r")

    def _take(self, line: bytes) -> ServerEvent | None:
        if line:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._lines.append(value)
            elif name == b"event":
                self._name = value.decode(errors="replace")
            return None
        name_before, lines = self._name, self._lines
        self._name, self._lines = "", []
        if not lines:
            return None
        return ServerEvent(name_before or "message", b"\n".join(lines).decode(errors="replace"))
