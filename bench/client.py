"""A client for what is prepared before a measurement, and for reading a whole stream.

Requests are written many at a time on connections that stay open, so that the preparation is short.
"""

import asyncio
import hashlib
import http.client
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from .failure import Failed
from .servers import Server

CONNECTIONS = 32
DEPTH = 32
READ_BYTES = 1 << 20
PAUSE_SECONDS = 0.5

OCTETS = {"Content-Type": "application/octet-stream"}
TEXT = {"Content-Type": "text/plain"}

_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d)")


@dataclass(frozen=True)
class Request:
    """A request whose answer has no body that matters."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes on the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.method != "GET":
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


def send_all(
    server: Server, requests: Iterable[Request], connections: int = CONNECTIONS, depth: int = DEPTH
) -> None:
    """Send requests over several connections, in no order; each must succeed."""
    try:
        asyncio.run(_send_all(server, iter(requests), connections, depth))
    except* (Failed, OSError) as group:
        raise Failed(str(group.exceptions[0])) from None


def create_streams(
    server: Server, count: int, prefix: str = "s", headers: Mapping[str, str] | None = None
) -> None:
    """Streams of bytes, named by prefix and number."""
    typed = OCTETS if headers is None else headers
    requests = [Request("PUT", server.path(f"{prefix}{number}"), b"", typed) for number in range(count)]
    for _ in range(server.kind.tries - 1):
        with suppress(Failed):
            send_all(server, requests)
            return
        time.sleep(PAUSE_SECONDS)
    send_all(server, requests)


def append_in_order(server: Server, stream: str, bodies: Iterable[bytes]) -> None:
    """Create a stream and append to it."""
    path = server.path(stream)
    send_all(server, [Request("PUT", path, b"", OCTETS)])
    send_all(server, (Request("POST", path, body, OCTETS) for body in bodies), connections=1, depth=8)


async def _send_all(server: Server, requests: Iterator[Request], connections: int, depth: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_send_some(server, requests, depth))


async def _send_some(server: Server, requests: Iterator[Request], depth: int) -> None:
    batch = list(islice(requests, depth))
    if not batch:
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        while batch:
            writer.write(b"".join(request.encode() for request in batch))
            await _expect_successes(reader, len(batch), server)
            batch = list(islice(requests, depth))
    finally:
        writer.close()


async def _expect_successes(reader: asyncio.StreamReader, count: int, server: Server) -> None:
    """Read until so many answers have begun. What is left of them comes before the next answer, unread."""
    text = b""
    while len(_STATUS.findall(text)) < count:
        received = await reader.read(1 << 16)
        _expect_no_refusal(text, server)
        if not received:
            raise Failed(f"{server.kind.label} closed the connection while streams were prepared")
        text += received
    _expect_no_refusal(text, server)


def _expect_no_refusal(text: bytes, server: Server) -> None:
    if refused := [status.decode() for status in _STATUS.findall(text) if not status.startswith(b"2")]:
        raise Failed(f"{server.kind.label} answered {refused[0]} while streams were prepared")


@dataclass(frozen=True)
class Answer:
    """What a GET brought."""

    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)


def get(server: Server, path: str) -> Answer:
    """One GET, which must succeed."""
    return ask(server, "GET", path)


def ask(server: Server, method: str, path: str, seconds: float = 60) -> Answer:
    """One request without a body, which must succeed within the time."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise Failed(f"{server.kind.label} answered {response.status} to {method} {path}")
    return Answer(response.headers, body)


@dataclass(frozen=True)
class WholeRead:
    """A stream that was read from its beginning to its end."""

    bytes: int
    requests: int
    digest: str | None


def read_whole(
    connection: http.client.HTTPConnection, path: str, digest: bool = False, keep: list[bytes] | None = None
) -> WholeRead:
    """Follow a stream from its beginning until the server says that there is no more."""
    buffer = memoryview(bytearray(READ_BYTES))
    hashed = hashlib.sha256() if digest else None
    total = requests = 0
    offset = "-1"
    while True:
        connection.request("GET", f"{path}?offset={offset}")
        response = connection.getresponse()
        requests += 1
        if response.status != 200:
            raise Failed(f"a read was answered with {response.status}")
        while count := response.readinto(buffer):
            total += count
            if hashed is not None:
                hashed.update(buffer[:count])
            if keep is not None:
                keep.append(bytes(buffer[:count]))
        if response.headers.get("Stream-Up-To-Date") == "true":
            return WholeRead(total, requests, hashed.hexdigest() if hashed else None)
        offset = response.headers["Stream-Next-Offset"]


@dataclass(frozen=True)
class ReadSpeed:
    """What was read over and over, and how long that took."""

    megabytes: float
    seconds: float

    @property
    def megabytes_per_second(self) -> float:
        """How fast it was."""
        return self.megabytes / self.seconds


def read_speed(connection: http.client.HTTPConnection, path: str, seconds: float) -> ReadSpeed:
    """As many whole reads as begin within the time."""
    begun = time.perf_counter()
    total = 0
    while time.perf_counter() - begun < seconds:
        total += read_whole(connection, path).bytes
    return ReadSpeed(total / 1e6, time.perf_counter() - begun)
