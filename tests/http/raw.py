"""A client that sends exactly the bytes it is told to, and shows exactly the bytes that come back."""

import errno
import json
import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.server import Server

TIMEOUT_SECONDS = 60.0
LARGE_ONES = 3


class CutOff(Exception):
    """The server closed the connection in the middle of a response."""


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error, whose shape is checked on the way."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert list(document) == ["error"]
        assert isinstance(document["error"]["message"], str)
        assert document["error"]["message"]
        return str(document["error"]["code"])


class Place(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class Raw:
    """One connection."""

    def __init__(
        self, server: Server | Place, timeout: float = TIMEOUT_SECONDS, buffer_bytes: int | None = None
    ) -> None:
        """`buffer_bytes`: how much the system takes for us before we read it."""
        self._socket = socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET)
        self._socket.settimeout(timeout)
        if buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._socket.connect((server.host, server.port))
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def hang_up(self) -> None:
        """Hang up with a reset: what is on its way is lost."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def finish_sending(self) -> None:
        """Close our direction only: the server sees the end, and can still answer, unless it has hung up."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def send(self, data: bytes) -> Self:
        """Send exactly these bytes."""
        self._socket.sendall(data)
        return self

    def ask(self, method: str, path: str, *lines: str | bytes, body: bytes | None = None) -> Self:
        """Send a request; `lines` are further header lines. A body comes with its length."""
        sent = [f"{method} {path} HTTP/1.1".encode(), b"Host: test"]
        sent += [line.encode() if isinstance(line, str) else line for line in lines]
        if body is not None:
            sent.append(b"Content-Length: %d" % len(body))
        return self.send(b"\r\n".join(sent) + b"\r\n\r\n" + (body or b""))

    def answer(self, head: bool = False) -> Answer:
        """The next response with all of its body; `head` if the request was a HEAD."""
        status, headers = self.begin()
        if head or status in (204, 304) or status < 200:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self.rest())
        if "content-length" in headers:
            return Answer(status, headers, self._exactly(int(headers["content-length"])))
        return Answer(status, headers, self.until_closed())

    def begin(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next response, without its body."""
        status_line, *lines = self._until(b"\r\n\r\n").decode("latin-1")[:-4].split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"{name} was sent twice"
            headers[name.lower()] = value.strip()
        return int(status_line.split(" ")[1]), headers

    def take(self, count: int) -> bytes:
        """Exactly so many bytes of a body."""
        return self._exactly(count)

    def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(self._until(b"\r\n"), 16)
        data = self._exactly(size)
        assert self._exactly(2) == b"\r\n"
        return data

    def rest(self) -> bytes:
        """All chunks to the end of the body."""
        parts = []
        while part := self.chunk():
            parts.append(part)
        return b"".join(parts)

    def until_closed(self) -> bytes:
        """Everything until the server hangs up."""
        while self._fill():
            pass
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def is_silent_for(self, seconds: float) -> bool:
        """Whether nothing comes for a while and the connection stays open."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._fill()
        except TimeoutError:
            return not self._buffer
        finally:
            self._socket.settimeout(before)
        return False

    def has_news(self) -> bool:
        """Whether anything has come that was not read."""
        return bool(self._buffer or select.select([self._socket], [], [], 0)[0])

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._fill():
                raise CutOff(self._buffer)
        end = self._buffer.index(mark) + len(mark)
        return self._take(end)

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._fill():
                raise CutOff(self._buffer)
        return self._take(count)

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _fill(self) -> bool:
        data = self._socket.recv(1 << 16)
        self._buffer += data
        return bool(data)


def ask(server: Server, method: str, path: str, *lines: str | bytes, body: bytes | None = None) -> Answer:
    """One request on a connection of its own."""
    with Raw(server) as raw:
        return raw.ask(method, path, *lines, body=body).answer(head=method == "HEAD")


def is_held_up(server: Server, path: str, act: Callable[[], object]) -> bool:
    """Whether others wait while a server answers many GETs of something large; counted, since a slow machine
    slows both alike.

    A server that does one thing at a time does something else at most once between each two of them, but for
    what it took before them by chance: so the middle of several tries counts.
    """
    counts = sorted(_count_meanwhile(server, path, act) for _ in range(5))
    print(f"done {counts} times while {LARGE_ONES} answers were made")
    return counts[2] < 2 * LARGE_ONES


def _count_meanwhile(server: Server, path: str, act: Callable[[], object]) -> int:
    """How often something is done, once after the other, until all of the large answers begin to come."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Raw(server)) for _ in range(LARGE_ONES)]
        for raw in connections:
            assert raw.ask("GET", "/healthz").answer().status == 200
        for raw in connections:
            raw.ask("GET", path)
        count = 0
        while not all(raw.has_news() for raw in connections):
            act()
            count += 1
        for raw in connections:
            assert raw.begin()[0] == 200
        return count


def data_of(answer: Answer) -> dict[str, Any]:
    """What an error tells besides its code and message."""
    error = dict(json.loads(answer.body)["error"])
    del error["code"], error["message"]
    return error
