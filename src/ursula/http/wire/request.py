"""One request on a connection: its head, as much of its body as has arrived, and the ways to answer it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from .head import Head
from .headers import HeaderList

if TYPE_CHECKING:
    from .connection import Connection

BUFFERED_BYTES_MAX = 256 * 1024
"""A connection is not read while more of a body than this waits for the handler of the request."""

FILE_PART_BYTES = 256 * 1024

NO_BODY = frozenset((204, 304))
"""Responses with these statuses have neither a body nor a Content-Length."""


class BodyCutOff(Exception):
    """The client did not send all of the body, or broke its encoding."""


class Request:
    """A request. Exactly one of `send`, `send_file` and `begin` answers it, once."""

    __slots__ = (
        "_connection",
        "_parts",
        "_waiter",
        "buffered_bytes",
        "cut_off",
        "expects_continue",
        "head",
        "headers",
        "is_complete",
        "keep_alive",
        "method",
        "on_gone",
        "path",
    )

    def __init__(self, connection: "Connection", head: Head, body: bytes | None = None) -> None:
        """`body` is the whole body, if it has already arrived."""
        self._connection = connection
        self.head = head
        self.method = head.method
        self.path = head.path
        self.headers = head.headers
        self.keep_alive = head.keep_alive
        self.expects_continue = head.expects_continue
        self.on_gone: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.cut_off = False
        self.buffered_bytes = 0
        self.is_complete = body is not None
        self._parts: list[bytes] = [] if body is None else [body]

    @property
    def query_string(self) -> str:
        """The query after the question mark, as it was sent."""
        return self.head.query_string

    @property
    def body_length(self) -> int | None:
        """The length of the body, if the head has it."""
        return self.head.body_length

    @property
    def scheme(self) -> str:
        """http or https."""
        return self._connection.scheme

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._connection.is_lost

    # The body

    @property
    def whole_body(self) -> bytes | None:
        """The body, if all of it has arrived and none of it has been read."""
        if not self.is_complete:
            return None
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def feed(self, data: bytes) -> None:
        """A part of the body has arrived."""
        self._parts.append(data)
        self.buffered_bytes += len(data)
        self._wake()

    def complete(self) -> None:
        """The whole body has arrived."""
        self.is_complete = True
        self._wake()

    def cut(self) -> None:
        """The rest of the body will never arrive."""
        if not self.is_complete:
            self.cut_off = True
            self._wake()

    async def parts(self) -> AsyncGenerator[bytes]:
        """The body as it arrives. Raises BodyCutOff if the end does not arrive."""
        if self.expects_continue:
            self.expects_continue = False
            if not self.is_complete and not self._parts:
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if self._parts:
                part = b"".join(self._parts)
                self._parts = []
                self.buffered_bytes = 0
                self._connection.adjust_reading()
                yield part
            elif self.is_complete:
                return
            elif self.cut_off:
                raise BodyCutOff
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The response

    def send(self, status: int, common: str, headers: HeaderList, body: bytes | None) -> None:
        """Respond with or without a body."""
        connection = self._connection
        if self.method == "HEAD" or status in NO_BODY:
            framing = "" if body is None else f"content-length: {len(body)}\r\n"
            body = None
        elif body is None and any(name == "content-length" for name, _ in headers):
            framing = ""
        else:
            framing = f"content-length: {len(body or b'')}\r\n"
        head = connection.heads.encode(status, common, headers, framing + self._close_header())
        connection.write(head + body if body else head)
        connection.finished(self)

    def send_no_content(self, lines: str) -> None:
        """Respond with 204 with header lines that are already encoded."""
        connection = self._connection
        connection.write(connection.heads.no_content(lines, self._close_header()))
        connection.finished(self)

    def send_file(
        self, status: int, common: str, headers: HeaderList, *, file: int, start: int, end: int
    ) -> None:
        """Respond with a range of an open file, read at the client's pace. The file is closed at the end."""
        connection = self._connection
        framing = f"content-length: {end - start}\r\n{self._close_header()}"
        connection.write(connection.heads.encode(status, common, headers, framing))
        connection.start(self._copy_file(file, start, end))

    async def _copy_file(self, file: int, start: int, end: int) -> None:
        connection, loop = self._connection, asyncio.get_running_loop()
        try:
            while start < end and not connection.is_lost:
                size = min(FILE_PART_BYTES, end - start)
                data = await loop.run_in_executor(None, os.pread, file, size, start)
                if not data:
                    connection.abort()  # the file has shrunk: padding would hide that
                    return
                start += len(data)
                connection.write(data)
                await connection.drained()
        except OSError:
            connection.abort()
        finally:
            os.close(file)
        connection.finished(self)

    def begin(self, status: int, common: str, headers: HeaderList) -> "Outgoing":
        """Begin a response whose body is sent piece by piece."""
        framing = "" if self.head.is_http_1_0 else "transfer-encoding: chunked\r\n"
        connection = self._connection
        connection.write(connection.heads.encode(status, common, headers, framing + self._close_header()))
        return Outgoing(self, connection)

    def _close_header(self) -> str:
        """The header that announces that the connection ends after this response, if it does."""
        # No request can follow a body that is not read.
        if not self.is_complete or self._connection.ends_soon:
            self.keep_alive = False
        return "" if self.keep_alive else "connection: close\r\n"


class BodyChunk:
    """A part of a body, framed once for all the responses that send it."""

    __slots__ = ("framed", "size")

    def __init__(self, *pieces: bytes) -> None:
        self.size = sum(map(len, pieces))
        self.framed = b"".join((b"%x\r\n" % self.size, *pieces, b"\r\n"))

    @property
    def data(self) -> bytes:
        """The part without its framing, for clients that do not know chunks."""
        return self.framed[-2 - self.size : -2]


class Outgoing:
    """A response that is sent piece by piece."""

    __slots__ = ("_connection", "_is_chunked", "_request")

    def __init__(self, request: Request, connection: "Connection") -> None:
        self._request = request
        self._connection = connection
        self._is_chunked = not request.head.is_http_1_0

    @property
    def is_full(self) -> bool:
        """Whether the client must read before more is sent. One that has disconnected never will."""
        return self._connection.is_full

    def when_drained(self, callback: Callable[[], None] | None) -> None:
        """Set a callback for each time that the client has read enough to be sent more."""
        self._connection.on_drained = callback

    def write(self, chunk: BodyChunk) -> None:
        """Send a part of the body."""
        self._connection.write(chunk.framed if self._is_chunked else chunk.data)

    def end(self) -> None:
        """End the body."""
        connection = self._connection
        connection.on_drained = None
        if self._is_chunked:
            connection.write(b"0\r\n\r\n")
        connection.finished(self._request)
