"""Reading request bodies: whole or not at all, within size, time and memory.

A body that is cut off is never stored; one that comes too slowly is given up; all bodies that are
being read or wait for their answer share one allowance.
"""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import NamedTuple

from .errors import Problem
from .exchange import Exchange
from .rsgi import Future

CHUNKED_ALLOWANCE_BYTES = 64 * 1024


class BodyLimit(NamedTuple):
    """How many bytes a kind of body may have, and what it is to have more."""

    bytes_max: int
    code: str = "body_too_large"

    def exceeded(self) -> Problem:
        """The answer to a larger one."""
        message = f"a body may have {self.bytes_max} bytes here"
        return Problem(self.code, message, limit=self.bytes_max)


class Bodies:
    """The bodies of all requests of this server."""

    def __init__(self, bytes_max: int, held_bytes_max: int, timeout_seconds: float) -> None:
        self.limit = BodyLimit(bytes_max)
        self._held_bytes_max = held_bytes_max
        self.timeout_seconds = timeout_seconds
        self._tick_seconds = min(1.0, timeout_seconds / 4)
        self._ticking = False
        self._reading: dict[Exchange, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.held_bytes = 0
        self.rejected_count = 0
        self._rejected_bytes = 0

    @property
    def held_bytes_max(self) -> int:
        """How many bytes all of them may have together."""
        return self._held_bytes_max

    @property
    def is_backed_up(self) -> bool:
        """Whether a body like the last one that was turned away would be turned away now."""
        return self._rejected_bytes > 0 and self.held_bytes + self._rejected_bytes > self._held_bytes_max

    def has_room(self, count: int) -> bool:
        """Whether a body of so many bytes, which is there already, can be taken."""
        return 0 < count <= self.limit.bytes_max and self.held_bytes + count <= self._held_bytes_max

    def read(self, exchange: Exchange, limit: BodyLimit | None = None) -> None:
        """Have the body of a request read: `on_body` gets all of it, or the request is answered here."""
        limit = limit or self.limit
        length_text = exchange.raw_headers.get("content-length")
        if length_text is None:
            if "transfer-encoding" in exchange.raw_headers:
                task = asyncio.get_running_loop().create_task(self._read_chunked(exchange, limit))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                exchange.on_body(b"")
            return
        length = int(length_text)
        if length > limit.bytes_max:
            raise limit.exceeded()
        if length == 0:
            exchange.on_body(b"")
            return
        self.hold(exchange, length)
        exchange.body_length = length
        future = exchange.body_future
        if future is not None and future.done():
            self._take(exchange, future)
            return
        self._reading[exchange] = 0.0
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)
        if future is None:
            exchange.body_future = future = exchange.proto()
        future.add_done_callback(partial(self._arrived, exchange))

    def _arrived(self, exchange: Exchange, future: Future) -> None:
        """The body has come, unless it was given up."""
        if self._reading.pop(exchange, None) is not None:
            self._take(exchange, future)

    def _take(self, exchange: Exchange, future: Future) -> None:
        """Go on with a body, or with what there is of it."""
        exchange.body_future = None  # it holds on to its callback: together they would be a cycle
        try:
            body = future.result()
        except Exception as error:
            error.__traceback__ = None  # it leads to the future, which holds the error: a cycle too
            body = b""
        try:
            if len(body) != exchange.body_length:
                raise incomplete()
            exchange.unread = False
            exchange.on_body(body)
        except Exception as error:
            exchange.app.failed(exchange, error)

    def hold(self, exchange: Exchange, count: int) -> None:
        """Take bytes from the allowance until the request is answered."""
        if self.held_bytes + count > self._held_bytes_max:
            self.rejected_count += 1
            if count <= self._held_bytes_max:  # a larger one is turned away at all times
                self._rejected_bytes = count
            raise Problem("write_backpressure", "too many bytes are being written at this moment")
        self.held_bytes += count
        exchange.held_bytes += count

    def _tick(self) -> None:
        """Give up the bodies that have taken too long. One timer for all: most bodies are there at once."""
        for exchange, age in list(self._reading.items()):
            if age >= self.timeout_seconds:
                del self._reading[exchange]
                future, exchange.body_future = exchange.body_future, None
                if future is not None:
                    future.cancel()
                exchange.refuse(timed_out(self.timeout_seconds))
            else:
                self._reading[exchange] = age + self._tick_seconds
        self._ticking = bool(self._reading)
        if self._ticking:
            asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    async def _read_chunked(self, exchange: Exchange, limit: BodyLimit) -> None:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                body = await self._collect(exchange, limit)
        except Problem as problem:
            exchange.refuse(problem)
        except TimeoutError:
            exchange.refuse(timed_out(self.timeout_seconds))
        else:
            exchange.app.guard(exchange, exchange.on_body, body)

    async def _collect(self, exchange: Exchange, limit: BodyLimit) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in self.parts(exchange, limit):
            size += len(part)
            if size > exchange.held_bytes:
                self.hold(exchange, max(CHUNKED_ALLOWANCE_BYTES, size - exchange.held_bytes))
            parts.append(part)
        return b"".join(parts)

    async def parts(
        self, exchange: Exchange, limit: BodyLimit, patience_seconds: float | None = None
    ) -> AsyncGenerator[bytes]:
        """The body bit by bit; a Problem if it is cut off, too large, or makes no progress for so long."""
        length = exchange.raw_headers.get("content-length")
        if length is not None and int(length) > limit.bytes_max:
            raise limit.exceeded()
        size = 0
        ended = False
        early = exchange.body_future
        body = aiter(exchange.proto) if early is None else _only(early)
        while True:
            try:
                async with asyncio.timeout(patience_seconds):
                    part = await anext(body)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise timed_out(patience_seconds or 0.0) from None
            if ended:
                raise incomplete()
            if not part:
                ended = True  # the end, or a client that went away: then another empty part follows
                continue
            size += len(part)
            if size > limit.bytes_max:
                raise limit.exceeded()
            yield part
        if length is not None and size != int(length):
            raise incomplete()
        exchange.unread = False


async def _only(future: Future) -> AsyncGenerator[bytes]:
    """A body that comes as a whole; nothing if its client went away."""
    try:
        yield await future
    except Exception:
        raise incomplete() from None


def incomplete() -> Problem:
    """The client did not send all that it announced."""
    return Problem("body_incomplete", "the body was cut off; nothing was stored")


def timed_out(seconds: float) -> Problem:
    """The body did not come in time."""
    return Problem("body_timeout", f"the body did not arrive within {seconds:g} s; nothing was stored")
