"""Reading request bodies: whole or not at all, within size, time and memory.

A body that is cut off is never stored; one that comes too slowly is given up; all bodies that are
being read or wait for their answer share one allowance.
"""

import asyncio
from collections.abc import Callable

from .errors import Problem
from .exchange import Exchange
from .rsgi import Future

OnBody = Callable[[bytes], None]

CHUNKED_ALLOWANCE_BYTES = 64 * 1024


class Bodies:
    """The bodies of all requests of this server."""

    def __init__(self, bytes_max: int, held_bytes_max: int, timeout_seconds: float) -> None:
        self._bytes_max = bytes_max
        self._held_bytes_max = held_bytes_max
        self._timeout = timeout_seconds
        self._tick_seconds = min(1.0, timeout_seconds / 4)
        self._ticking = False
        self._readings: dict[Reading, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.held_bytes = 0

    def read(self, exchange: Exchange, on_body: OnBody) -> None:
        """Have the body of a request read; `on_body` is called with all of it, or the request is answered."""
        length_text = exchange.raw_headers.get("content-length")
        if length_text is None:
            if "transfer-encoding" in exchange.raw_headers:
                task = asyncio.get_running_loop().create_task(self._read_chunked(exchange, on_body))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                on_body(b"")
            return
        length = int(length_text)
        if length > self._bytes_max:
            raise self._too_large()
        self.hold(exchange, length)
        if length == 0:
            on_body(b"")
            return
        reading = Reading(self, exchange, length, on_body)
        self._readings[reading] = 0.0
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)
        reading.begin()

    def hold(self, exchange: Exchange, count: int) -> None:
        """Take bytes from the allowance until the request is answered."""
        if self.held_bytes + count > self._held_bytes_max:
            raise Problem("write_backpressure", "too many bytes are being written at this moment")
        self.held_bytes += count
        exchange.held_bytes += count

    def release(self, count: int) -> None:
        """Give bytes back to the allowance."""
        self.held_bytes -= count

    def finished(self, reading: "Reading") -> bool:
        """Whether a reading that has ended was still wanted."""
        return self._readings.pop(reading, None) is not None

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body may have {self._bytes_max} bytes", limit=self._bytes_max)

    def _tick(self) -> None:
        """Give up the bodies that have taken too long. One timer for all: most bodies are there at once."""
        for reading, age in list(self._readings.items()):
            if age >= self._timeout:
                del self._readings[reading]
                reading.give_up()
            else:
                self._readings[reading] = age + self._tick_seconds
        self._ticking = bool(self._readings)
        if self._ticking:
            asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    async def _read_chunked(self, exchange: Exchange, on_body: OnBody) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                body = await self._collect(exchange)
            on_body(body)
        except Problem as problem:
            exchange.refuse(problem)
        except TimeoutError:
            exchange.refuse(timed_out(self._timeout))

    async def _collect(self, exchange: Exchange) -> bytes:
        parts: list[bytes] = []
        size = 0
        ended = False
        async for part in exchange.proto:
            if ended:
                raise incomplete()
            if not part:
                ended = True  # the end, or a client that went away: then another empty part follows
                continue
            size += len(part)
            if size > self._bytes_max:
                raise self._too_large()
            if size > exchange.held_bytes:
                self.hold(exchange, max(CHUNKED_ALLOWANCE_BYTES, size - exchange.held_bytes))
            parts.append(part)
        return b"".join(parts)


class Reading:
    """A body of known length that is on its way."""

    __slots__ = ("_bodies", "_exchange", "_future", "_length", "_on_body")

    def __init__(self, bodies: Bodies, exchange: Exchange, length: int, on_body: OnBody) -> None:
        self._bodies = bodies
        self._exchange = exchange
        self._length = length
        self._on_body = on_body
        self._future: Future | None = None

    def begin(self) -> None:
        """Ask for the body."""
        self._future = self._exchange.proto()
        self._future.add_done_callback(self._arrived)

    def give_up(self) -> None:
        """It took too long."""
        if self._future is not None:
            self._future.cancel()
        self._exchange.refuse(timed_out(self._bodies._timeout))

    def _arrived(self, future: Future) -> None:
        self._future = None  # it holds on to this callback: together they would be a cycle
        if not self._bodies.finished(self):
            return
        try:
            body = future.result()
        except Exception:
            body = b""
        exchange = self._exchange
        if len(body) != self._length:
            exchange.refuse(incomplete())
            return
        exchange.app.guard(exchange, self._on_body, body)


def incomplete() -> Problem:
    """The client did not send all that it announced."""
    return Problem("body_incomplete", "the body was cut off; nothing was stored")


def timed_out(seconds: float) -> Problem:
    """The body did not come in time."""
    return Problem("body_timeout", f"the body did not arrive within {seconds:g} s; nothing was stored")
