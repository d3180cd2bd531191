"""Reading server-sent events as they are on the wire."""

import json
import re
from types import TracebackType
from typing import Any, Self

from tests.http.raw import Raw
from tests.http.wire import offset
from tests.server import Server


class Events:
    """One SSE connection, read event by event."""

    def __init__(self, server: Server, path: str, at: str = "-1", *lines: str, query: str = "") -> None:
        self._raw = Raw(server)
        self._raw.ask("GET", f"{path}?offset={at}&live=sse{query}", *lines)
        self._data = b""
        self._ended = False
        self.status, self.headers = self._raw.begin()
        assert self.status == 200
        assert self.headers["content-type"] == "text/event-stream"
        assert self.headers["cache-control"] == "no-cache"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def next(self) -> bytes:
        """The next event or comment, with the empty line that ends it; empty at the end."""
        while b"\n\n" not in self._data:
            if self._ended:
                assert not self._data, f"it ended inside an event: {self._data!r}"
                return b""
            part = self._raw.chunk()
            self._data += part
            self._ended = not part
        event, _, self._data = self._data.partition(b"\n\n")
        return event + b"\n\n"

    def rest(self) -> list[bytes]:
        """All events to the end."""
        return list(iter(self.next, b""))

    def control(self) -> dict[str, Any]:
        """The next event, which must be a control event, checked to the byte."""
        return parse_control(self.next())

    def data(self) -> bytes:
        """The payload of the next event, which must be a data event."""
        return parse_data(self.next())

    def is_silent_for(self, seconds: float) -> bool:
        """Whether nothing comes for a while."""
        return not self._data and self._raw.is_silent_for(seconds)


def parse_control(event: bytes) -> dict[str, Any]:
    """The fields of a control event."""
    match = re.fullmatch(rb"event: control\ndata:(\{[^\n]*\})\nid: ([0-9]{20})\n\n", event)
    assert match is not None, event
    fields: dict[str, Any] = json.loads(match[1])
    assert fields["streamNextOffset"] == match[2].decode()
    assert set(fields) <= {"streamNextOffset", "streamCursor", "upToDate", "streamClosed"}
    if "streamClosed" in fields:
        assert fields == {
            "streamNextOffset": fields["streamNextOffset"],
            "upToDate": True,
            "streamClosed": True,
        }
    else:
        assert re.fullmatch("[0-9]+", fields["streamCursor"])
    return fields


def parse_data(event: bytes) -> bytes:
    """The payload of a data event, as a browser would put it together."""
    assert event.startswith(b"event: data\n"), event
    lines = event.removesuffix(b"\n\n").split(b"\n")[1:]
    assert all(line.startswith(b"data:") for line in lines), event
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)


def offset_of(control: dict[str, Any]) -> int:
    """Where a control event leads."""
    text = control["streamNextOffset"]
    assert text == offset(int(text))
    return int(text)
