"""Many clients that bootstrap at once, each its own stream: a load for where there is no `ursula-bench`."""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from .client import OCTETS, Request, send_all
from .failure import Failed
from .servers import Server

TIMEOUT_SECONDS = 60

_LENGTH = re.compile(rb"content-length: *(\d+)\r\n", re.IGNORECASE)
_BOUNDARY = re.compile(rb"boundary=([^\s;]+)")


@dataclass(frozen=True)
class Content:
    """What each client has a stream of: messages, and a snapshot half way."""

    messages: int
    bytes_each: int
    snapshot_bytes: int = 65_536

    @property
    def before(self) -> int:
        """Messages that the snapshot stands for."""
        return self.messages // 2

    @property
    def parts(self) -> int:
        """What a bootstrap brings: the snapshot and the messages after it."""
        return 1 + self.messages - self.before

    @property
    def answer_bytes(self) -> int:
        """The size of a bootstrap, without what frames its parts."""
        return self.snapshot_bytes + (self.messages - self.before) * self.bytes_each


@dataclass(frozen=True)
class Stampede:
    """How it went for all clients together."""

    p50_ms: float
    p99_ms: float
    bytes: int
    failed: int
    """Answers with another status, or without all parts."""
    seconds: float


def prepare(server: Server, clients: int, content: Content) -> None:
    """A stream for each client. All messages are alike, so their order is as it comes."""
    paths = [_path(server, client) for client in range(clients)]
    message, snapshot = b"x" * content.bytes_each, b"s" * content.snapshot_bytes

    def appends(count: int) -> Iterator[Request]:
        return (Request("POST", path, message, OCTETS) for _ in range(count) for path in paths)

    name = f"snapshot/{content.before * content.bytes_each:020}"
    send_all(server, (Request("PUT", path, b"", OCTETS) for path in paths))
    send_all(server, appends(content.before))
    send_all(server, (Request("PUT", f"{path}/{name}", snapshot, OCTETS) for path in paths), depth=1)
    send_all(server, appends(content.messages - content.before))


def stampede(server: Server, clients: int, content: Content) -> Stampede:
    """All clients connect and bootstrap at the same moment."""
    paths = [f"{_path(server, client)}/bootstrap" for client in range(clients)]
    try:
        return uvloop.run(_stampede(server.port, paths, content.parts))
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        raise Failed(f"a bootstrap was not answered: {error!r}") from None


def _path(server: Server, client: int) -> str:
    return server.path(f"doc-{client:06}")


async def _stampede(port: int, paths: list[str], parts: int) -> Stampede:
    begun = time.perf_counter()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        answers = await asyncio.gather(*(_bootstrap(port, path, parts) for path in paths))
    seconds = sorted(taken for taken, _, _ in answers)
    return Stampede(
        p50_ms=seconds[len(seconds) // 2] * 1e3,
        p99_ms=seconds[len(seconds) * 99 // 100] * 1e3,
        bytes=sum(size for _, size, _ in answers),
        failed=sum(not right for _, _, right in answers),
        seconds=time.perf_counter() - begun,
    )


async def _bootstrap(port: int, path: str, parts: int) -> tuple[float, int, bool]:
    """How long it took, the size of the body, and whether it was right."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(Request("GET", path).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length, boundary = _LENGTH.search(head), _BOUNDARY.search(head)
        if length is None or boundary is None:
            return time.perf_counter() - begun, 0, False
        body = await reader.readexactly(int(length[1]))
        seconds = time.perf_counter() - begun
    finally:
        writer.close()
    # One boundary before each part, and one after the last.
    right = head.startswith(b"HTTP/1.1 200") and body.count(b"--" + boundary[1]) == parts + 1
    return seconds, len(body), right
