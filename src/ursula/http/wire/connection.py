"""One client's connection: hands over its requests in order, writes the responses, and knows when to hang up.

Requests that a client sends ahead wait until those before them are answered and the responses have been read.
Until then, nothing more is read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..errors import Problem
from .parser import RequestParser
from .request import BUFFERED_BYTES_MAX, Request

if TYPE_CHECKING:
    from .server import WireServer

LATE_SECONDS = 0.5
"""A request whose small body has not arrived by then is handed over without it, and counted from then on."""

HEAD_SECONDS = 30.0
LINGER_SECONDS = 5.0
"""How long we go on reading from a client after its last response, so that it can read that response."""

REFUSED_AT_ONCE_MAX = 64
"""How many connections over the limit get a response; others are just closed, to save file descriptors."""


class Connection(asyncio.Protocol):
    """The protocol of one connection."""

    __slots__ = (
        "_at_eof",
        "_is_aborted",
        "_is_reading",
        "_parser",
        "_room_waiter",
        "_server",
        "_task",
        "_transport",
        "_unread_before",
        "current",
        "heads",
        "is_full",
        "on_drained",
        "pipelined",
        "scheme",
        "since",
    )

    _parser: RequestParser

    def __init__(self, server: "WireServer") -> None:
        self._server = server
        self.heads = server.heads
        self.scheme = "http"
        self._transport: asyncio.Transport | None = None
        self.current: Request | None = None  # the one that is being answered
        self.pipelined: deque[Request | Problem] = deque()  # those after it
        self._is_reading = True
        self._at_eof = False
        self._is_aborted = False
        self._unread_before = 0
        self._task: asyncio.Task[None] | None = None
        self._room_waiter: asyncio.Future[None] | None = None
        self.is_full = False
        self.on_drained: Callable[[], None] | None = None
        self.since = server.now

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport  # type: ignore[assignment]
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._parser = RequestParser(self, self._server)  # not earlier: it refers back to the connection
        excess = self._server.admit(self)
        if excess > REFUSED_AT_ONCE_MAX:
            self.abort()
        elif excess > 0:
            message = "the server has reached its limit of connections; try again later"
            self._refuse(Problem("too_many_connections", message))

    def connection_lost(self, error: Exception | None) -> None:
        """The client has disconnected, or we have hung up."""
        self._transport = None
        self.is_full = True  # nothing can be sent any more
        self._server.forget(self)
        self._parser.close()
        self.pipelined.clear()
        self.on_drained = None
        self._wake_writer()
        self._call_on_gone()
        self.current = None  # no reference cycle is left for the garbage collector

    def data_received(self, data: bytes) -> None:
        """Some bytes have arrived. A request whose head is known needs no parser."""
        parser = self._parser
        if parser.unparsed:
            parser.unparsed += data
            return
        if (
            parser.incoming is None
            and not parser.bytes_since_progress
            and not parser.in_head
            and not parser.is_stopped
        ):
            end = data.find(b"\r\n\r\n") + 4
            if end >= 4:
                raw = data[:end]
                head = self._server.known_heads.find(raw)
                if head is not None and len(data) == end + head.body_length:  # type: ignore[operator]
                    self.hand_over(Request(self, head, data[end:]))
                    return
                parser.raw_head = raw
        parser.feed(data)
        parser.raw_head = b""

    def eof_received(self) -> bool:
        """The client will send nothing more. Returns whether it still waits for a response."""
        self._at_eof = True
        self._parser.end_of_input()
        if self.current is None and not self.pipelined:
            return False
        if self.current is not None and self.current.on_gone is not None:
            self._call_on_gone()  # a client that hangs up while it only waits for something new is gone
            return False
        return self.scheme == "http"  # TLS has no half-closed connections

    def pause_writing(self) -> None:
        """The client does not read as fast as we send."""
        self.is_full = True
        self._server.behind.setdefault(self, self._server.now)
        self._server.check_unread_soon()

    def resume_writing(self) -> None:
        """The client has read."""
        self.is_full = False
        self._server.behind.pop(self, None)
        self._wake_writer()
        if self.on_drained is not None:
            self.on_drained()
        if self.pipelined:
            asyncio.get_running_loop().call_soon(self._take_next)

    def _wake_writer(self) -> None:
        if self._room_waiter is not None and not self._room_waiter.done():
            self._room_waiter.set_result(None)

    def _call_on_gone(self) -> None:
        request = self.current
        if request is not None and request.on_gone is not None:
            on_gone, request.on_gone = request.on_gone, None
            on_gone()

    # Requests, one after the other

    def hand_over(self, request: Request) -> None:
        """Have a request handled when its turn comes."""
        self._parser.is_handed_over = True
        if self.current is None and not self.pipelined and not self.is_full:
            self.current = request
            self._server.handle(request)
        else:
            self.pipelined.append(request)
            self.adjust_reading()

    def finished(self, request: Request) -> None:
        """A request has been answered."""
        if self.current is not request:
            return
        self.current = None
        self.since = self._server.now
        if not request.keep_alive or self._server.is_stopping or (self._at_eof and not self.pipelined):
            self._hang_up(is_done=request.is_complete)
        elif self.pipelined and self._task is None:
            asyncio.get_running_loop().call_soon(self._take_next)

    def _take_next(self) -> None:
        """Begin the next pipelined request once the client has read the responses before it."""
        if self.current is not None or not self.pipelined or self.is_full or self._transport is None:
            return
        upcoming = self.pipelined.popleft()
        if isinstance(upcoming, Problem):
            self._refuse(upcoming)
            return
        self.current = upcoming  # before more is parsed: later requests must queue behind it
        if self._parser.unparsed:
            self._parser.feed_unparsed()
        self.adjust_reading()
        self._server.handle(upcoming)

    def answer_and_close(self, problem: Problem) -> None:
        """Respond to input that is not a request with a problem when its turn comes, then hang up."""
        self.discard_input()
        if self.current is None and not self.pipelined and not self.is_full:
            self._refuse(problem)
        else:
            self.pipelined.append(problem)

    def _refuse(self, problem: Problem) -> None:
        body = problem.body()
        framing = f"content-length: {len(body)}\r\nconnection: close\r\n"
        headers = problem.answer_headers()
        self.write(self.heads.encode(problem.status, self._server.common, headers, framing) + body)
        self._hang_up(is_done=False)

    # Reading

    def adjust_reading(self) -> None:
        """Read only while there is room for more."""
        request = self._parser.incoming
        wants = not self.pipelined and (request is None or request.buffered_bytes <= BUFFERED_BYTES_MAX)
        if self._transport is not None and not self._parser.is_stopped and wants != self._is_reading:
            self._is_reading = wants
            if wants:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def discard_input(self) -> None:
        """Discard everything that the client sends from now on."""
        self._parser.stop()
        if self._transport is not None and not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()

    # Writing

    @property
    def ends_soon(self) -> bool:
        """Whether the server is stopping, so that the next response is the last one."""
        return self._server.is_stopping

    @property
    def is_lost(self) -> bool:
        """Whether the client has disconnected."""
        return self._transport is None

    @property
    def unread_bytes(self) -> int:
        """Written bytes that the client has not read, insofar as they are in our buffers."""
        if self._transport is None or self._is_aborted:
            return 0
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self.is_full:
                self._server.check_unread_soon()

    async def drained(self) -> None:
        """Wait until the client has read enough to be sent more."""
        while self.is_full and self._transport is not None:
            self._room_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._room_waiter
            finally:
                self._room_waiter = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Continue with a response in a task."""
        self._task = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self.abort()
            self._server.log_failure(task.exception())
        self._take_next()

    # Hanging up

    def abort(self) -> None:
        """Hang up at once, and drop everything that is not sent yet."""
        if self._transport is not None:
            self._is_aborted = True
            self._transport.abort()

    def _hang_up(self, is_done: bool) -> None:
        """Hang up once everything is sent.

        If the client may still be sending, we go on reading for a while: hanging up would make its system
        drop the response before the client has read it.
        """
        if self._transport is None:
            return
        if is_done or self._at_eof or not self._transport.can_write_eof():
            self._transport.close()
            return
        self.discard_input()
        self.since = self._server.now
        self._transport.write_eof()

    def close_if_idle(self) -> None:
        """The server is stopping: hang up, unless a request is being answered or has begun to arrive."""
        parser = self._parser
        if self.current is None and not self.pipelined and parser.incoming is None and not parser.in_head:
            self._hang_up(is_done=True)

    def check_timeouts(self, now: float, keep_alive_seconds: float) -> None:
        """Act if the client takes too long. Called periodically."""
        if self.current is not None or self.pipelined:
            return
        parser = self._parser
        unread, before, self._unread_before = self.unread_bytes, self._unread_before, self.unread_bytes
        if unread < before:
            self.since = now  # it is still reading its response
        age = now - self.since
        if unread:
            if age > keep_alive_seconds:
                self.abort()
        elif parser.is_stopped:
            if age > LINGER_SECONDS:
                self.abort()
        elif parser.incoming is not None:
            if age > LATE_SECONDS and not parser.is_handed_over:
                self.hand_over(parser.incoming)
        elif parser.in_head:
            if age > HEAD_SECONDS:
                parser.reject_late_head(HEAD_SECONDS)
        elif age > keep_alive_seconds:
            self._hang_up(is_done=True)
