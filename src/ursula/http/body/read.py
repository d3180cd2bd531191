"""Reading request bodies: completely or not at all, within limits on size, time and memory.

A body that is cut off is never stored, and one that arrives too slowly is abandoned. All bodies that are
being read, or that wait for their response, share one allowance; each takes as much of it as has arrived.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

from ..errors import AnyErrorCode, Problem
from ..exchange import Exchange
from ..wire.request import BodyCutOff, Request


class BodyLimit(NamedTuple):
    """How many bytes a kind of body may have, and the error code for a larger one."""

    bytes_max: int
    code: AnyErrorCode = "body_too_large"

    def check(self, size: int | None) -> None:
        """Reject a body that is too large; None is a size that is not known yet."""
        if size is not None and size > self.bytes_max:
            message = f"a body may have at most {self.bytes_max} bytes here"
            raise Problem(self.code, message, limit=self.bytes_max)


class Bodies:
    """The bodies of all requests of this server."""

    def __init__(self, bytes_max: int, held_bytes_max: int, timeout_seconds: float) -> None:
        self.limit = BodyLimit(bytes_max)
        self.held_bytes_max = held_bytes_max
        self.timeout_seconds = timeout_seconds
        self.held_bytes = 0
        self.rejected_count = 0
        self._rejected_bytes = 0

    @property
    def is_backed_up(self) -> bool:
        """Whether a body as large as the last rejected one would be rejected now."""
        return self._rejected_bytes > 0 and not self._has_room(self._rejected_bytes)

    def has_room(self, count: int) -> bool:
        """Whether a body of this many bytes, all of which have arrived, can be accepted."""
        return 0 < count <= self.limit.bytes_max and self._has_room(count)

    def _has_room(self, count: int) -> bool:
        return self.held_bytes + count <= self.held_bytes_max

    def when_read(self, exchange: Exchange, on_body_read: Callable[[bytes], None]) -> None:
        """Call back with the whole body: at once if it has arrived."""
        if not exchange.request.is_complete:
            exchange.spawn(self._read_and_call(exchange, on_body_read))
        else:
            on_body_read(self._take_arrived(exchange, self.limit))

    async def _read_and_call(self, exchange: Exchange, on_body_read: Callable[[bytes], None]) -> None:
        on_body_read(await self.read(exchange))

    async def read(self, exchange: Exchange, limit: BodyLimit | None = None) -> bytes:
        """Read the whole body."""
        limit = limit or self.limit
        if exchange.request.is_complete:
            return self._take_arrived(exchange, limit)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self.timeout_seconds), aclosing(self.parts(exchange, limit)) as body:
                async for part in body:
                    self._hold(exchange, len(part))
                    parts.append(part)
        except TimeoutError:
            raise timed_out(self.timeout_seconds) from None
        return b"".join(parts)

    def _take_arrived(self, exchange: Exchange, limit: BodyLimit) -> bytes:
        check_encoding(exchange.request)
        body = exchange.request.whole_body or b""
        limit.check(len(body))
        self._hold(exchange, len(body))
        return body

    async def parts(
        self, exchange: Exchange, limit: BodyLimit, patience_seconds: float | None = None
    ) -> AsyncGenerator[bytes]:
        """The body piece by piece. Raises a Problem if it is cut off, too large, or stalls for too long."""
        request = exchange.request
        check_encoding(request)
        limit.check(request.body_length)
        size = 0
        async with aclosing(request.parts()) as body:
            while True:
                try:
                    async with asyncio.timeout(patience_seconds):
                        part = await anext(body, None)
                except BodyCutOff:
                    raise incomplete() from None
                except TimeoutError:
                    if patience_seconds is None:
                        raise
                    raise timed_out(patience_seconds) from None
                if part is None:
                    return
                size += len(part)
                limit.check(size)
                yield part

    def _hold(self, exchange: Exchange, count: int) -> None:
        """Take bytes from the allowance until the request is answered."""
        if not self._has_room(count):
            self.rejected_count += 1
            size = exchange.request.body_length or count
            if size <= self.held_bytes_max:  # a larger one is always rejected
                self._rejected_bytes = size
            raise Problem("write_backpressure", "too many bytes are being written right now")
        self.held_bytes += count
        exchange.held_bytes += count

    def release(self, count: int) -> None:
        """Give the bytes of an answered request back to the allowance."""
        self.held_bytes -= count


def check_encoding(request: Request) -> None:
    """Reject an encoded body: its bytes are not the ones that the client wants to store."""
    content = request.headers.first("content-encoding")
    if content is not None and content.lower() not in ("", "identity"):
        message = f"Content-Encoding {content!r} is not supported: send the body unencoded"
        raise Problem("content_encoding_unsupported", message)
    transfer = request.headers.get("transfer-encoding")
    if transfer is not None and ",".join(transfer).strip().lower() != "chunked":
        message = f"Transfer-Encoding {', '.join(transfer)!r} is not supported, only 'chunked' is"
        raise Problem("transfer_encoding_unsupported", message)


def incomplete() -> Problem:
    """The problem of a body that the client did not send completely."""
    return Problem("body_incomplete", "the body was cut off; nothing was stored")


def timed_out(seconds: float) -> Problem:
    """The problem of a body that did not arrive in time."""
    return Problem("body_timeout", f"the body did not arrive within {seconds:g} s; nothing was stored")
