"""One client's connection: bytes become requests, and answers become bytes, in the order of the requests.

A request with a small body is handed over when all of it has arrived, any other as soon as its head has.
Requests that a client sends ahead wait until those before them are answered and have been read; meanwhile
nothing more is read.

The parser cannot be told to pause. So it is fed little at a time, but for bodies of known length: what it
makes of one piece is all that comes before the limits are looked at again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import httptools

from ..errors import Problem
from .head import Head
from .headers import RequestHeaders, header_name
from .request import BUFFERED_BYTES_MAX, Request

if TYPE_CHECKING:
    from .server import WireServer

HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 128
PIECE_BYTES = 8 * 1024
AHEAD_MAX = 16
"""So many requests are parsed before the one that is being answered; the bytes of others wait."""

SMALL_BODY_BYTES = 16 * 1024
"""Bodies up to this size are handed over whole. They are not counted before that, so it must not be much."""

LATE_SECONDS = 0.5
"""A request whose small body has not arrived by then is handed over without it, and counted from then on."""

HEAD_SECONDS = 30.0
LINGER_SECONDS = 5.0
"""How long a client that is still sending is listened to after its last answer, so that it can read that."""

REFUSED_AT_ONCE_MAX = 64
"""So many connections over the limit are told so; more than these are just closed, to keep files free."""

_HTTP_2 = b"PRI * HTTP/2"


class Connection(asyncio.Protocol):
    """The protocol of one connection."""

    __slots__ = (
        "_ahead",
        "_eof",
        "_fed",
        "_head_bytes",
        "_headers",
        "_in_head",
        "_incoming",
        "_is_handed_over",
        "_is_reading",
        "_lingers",
        "_method",
        "_missing_bytes",
        "_parser",
        "_raw_head",
        "_room_waiter",
        "_server",
        "_target",
        "_task",
        "_transport",
        "_unfed",
        "_unread_before",
        "current",
        "heads",
        "is_full",
        "on_room",
        "scheme",
        "since",
    )

    _headers: RequestHeaders
    _method: bytes
    _target: bytes
    _parser: Any

    def __init__(self, server: "WireServer") -> None:
        self._server = server
        self.heads = server.heads
        self.scheme = "http"
        self._transport: asyncio.Transport | None = None
        self.current: Request | None = None
        self._ahead: deque[Request | Problem] = deque()
        self._incoming: Request | None = None
        self._is_handed_over = False
        self._is_reading = True
        self._lingers = False
        self._eof = False
        self._fed = 0  # since something came of it: a head, a chunk, some of a body
        self._unfed = b""
        self._raw_head = b""  # the head that the parser is about to see, if it begins a message
        self._in_head = False
        self._head_bytes = 0
        self._missing_bytes = 0  # of a body whose length is known
        self._unread_before = 0
        self._task: asyncio.Task[None] | None = None
        self._room_waiter: asyncio.Future[None] | None = None
        self.is_full = False
        self.on_room: Callable[[], None] | None = None
        self.since = server.now

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport  # type: ignore[assignment]
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._parser = httptools.HttpRequestParser(self)
        excess = self._server.admit(self)
        if excess > REFUSED_AT_ONCE_MAX:
            self.abort()
        elif excess > 0:
            message = "the server has as many connections as it may have; try again later"
            self._refuse(Problem("too_many_connections", message))

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, or we have hung up."""
        self._transport = None
        self._server.forget(self)
        if self._incoming is not None:
            self._incoming.cut()
        self._ahead.clear()
        self.on_room = None
        self._let_go_on()
        self._gone()
        self._parser = self._incoming = self.current = None  # no cycle is left for the garbage collector

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        if self._unfed:
            self._unfed += data
            return
        if self._incoming is None and not self._fed and not self._in_head and not self._lingers:
            end = data.find(b"\r\n\r\n") + 4
            if end >= 4:
                raw = data[:end]
                head = self._server.known_heads.find(raw)
                if head is not None and len(data) == end + head.body_length:  # type: ignore[operator]
                    self._hand_over(Request(self, head, data[end:]))
                    return
                self._raw_head = raw
        self._feed(data)
        self._raw_head = b""

    def _feed(self, data: bytes) -> None:
        """Have bytes parsed, as long as there is room for what comes of them."""
        while data and not self._lingers:
            if len(self._ahead) >= AHEAD_MAX:
                self._unfed = data
                break
            size = max(PIECE_BYTES, self._missing_bytes)
            piece, data = (data, b"") if len(data) <= size else (data[:size], data[size:])
            data = self._parse(piece) + data
        if not self._lingers and self._incoming is not None:
            self._look_at_body(self._incoming)

    def _parse(self, piece: bytes) -> bytes:
        """Feed the parser; what it leaves to be fed to another one."""
        self._fed += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_upgrade() + piece[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._malformed(piece, error)
        else:
            if self._fed > HEAD_BYTES_MAX and not self._lingers:
                self._too_much()
        return b""

    def _too_much(self) -> None:
        """A head without end, or trailers, or an extension of a chunk."""
        request = self._incoming
        if request is None:
            self._break_off(_head_too_large())
        else:
            self._cut(request)

    def _without_upgrade(self) -> bytes:
        """The head of a request that asks for another protocol, as if it had not: we speak nothing else.

        The parser takes whatever follows for that protocol, so another one goes on.
        """
        self._parser = httptools.HttpRequestParser(self)
        self._fed = 0
        if self._lingers:
            return b""
        lines = [b"%s %s HTTP/1.1" % (self._method, self._target)]
        for name, values in self._headers.items():
            if name not in ("upgrade", "connection", "http2-settings"):
                lines += [b"%s: %s" % (name.encode(), value.encode()) for value in values]
                lines += [] if values else [b"%s: \xff" % name.encode()]  # one that is not ASCII stays so
        return b"\r\n".join([*lines, b"", b""])

    def _look_at_body(self, request: Request) -> None:
        """Hand over a request that need not wait for its body, and see that no more comes than is taken."""
        length = request.body_length
        is_small = length is not None and length <= SMALL_BODY_BYTES and not request.expects_continue
        if not self._is_handed_over and not is_small:
            self._hand_over(request)
        if request.buffered_bytes > BUFFERED_BYTES_MAX:
            self.adjust_reading()

    def eof_received(self) -> bool:
        """The client will send nothing more. True if it is to be answered all the same."""
        self._eof = True
        request = self._incoming
        if request is not None:
            request.cut()
            if not self._is_handed_over:
                self._hand_over(request)
        if self.current is None and not self._ahead:
            return False
        if self.current is not None and self.current.on_gone is not None:
            self._gone()  # a client that only waits for something new, and hangs up, is gone
            return False
        return self.scheme == "http"  # TLS has no half-closed connections

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        self.is_full = True
        self._server.congested[self] = self._server.now
        self._server.look_at_unread()

    def resume_writing(self) -> None:
        """The client has read."""
        self.is_full = False
        self._server.congested.pop(self, None)
        self._let_go_on()
        if self.on_room is not None:
            self.on_room()
        if self._ahead:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _let_go_on(self) -> None:
        if self._room_waiter is not None and not self._room_waiter.done():
            self._room_waiter.set_result(None)

    def _gone(self) -> None:
        request = self.current
        if request is not None and request.on_gone is not None:
            on_gone, request.on_gone = request.on_gone, None
            on_gone()

    # What the parser finds

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        self._headers = RequestHeaders()
        self._target = b""
        self._head_bytes = 0
        self.since = self._server.now

    def on_url(self, url: bytes) -> None:
        """Its target, or some of it."""
        self._target += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: those come after the body and mean nothing to us."""
        if self._in_head:
            self._head_bytes += len(name) + len(value)
            self._headers.add(header_name(name), value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self._lingers:
            return
        parser = self._parser
        self._in_head = False
        self._fed = 0
        self._method = parser.get_method()
        if parser.should_upgrade():
            if self._method == b"CONNECT":
                self._break_off(Problem("method_unknown", "CONNECT is for proxies, and this is none"))
            return
        if self._head_bytes > HEAD_BYTES_MAX or len(self._headers) > HEADERS_MAX:
            self._break_off(_head_too_large())
            return
        head = Head(
            self._method.decode("ascii"),
            _origin_form(self._target),
            self._headers,
            is_old=parser.get_http_version() != "1.1",
            keep_alive=parser.should_keep_alive(),
        )
        if self._raw_head:
            self._server.known_heads.note(self._raw_head, head)
            self._raw_head = b""
        request = self._incoming = Request(self, head)
        self._missing_bytes = request.body_length or 0
        self._is_handed_over = False
        self.since = self._server.now

    def on_body(self, data: bytes) -> None:
        """Some of the body."""
        self._fed = 0
        if self._incoming is not None:
            self._missing_bytes -= len(data)
            self._incoming.feed(data)

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._fed = 0

    def on_message_complete(self) -> None:
        """The body is complete."""
        request = self._incoming
        if request is None:
            return
        self._incoming = None
        self._fed = self._missing_bytes = 0
        request.complete()
        if not self._is_handed_over:
            self._hand_over(request)

    # Requests, one after the other

    def _hand_over(self, request: Request) -> None:
        self._is_handed_over = True
        if self.current is None and not self._ahead and not self.is_full:
            self.current = request
            self._server.handle(request)
        else:
            self._ahead.append(request)
            self.adjust_reading()

    def finished(self, request: Request) -> None:
        """A request has been answered."""
        if self.current is not request:
            return
        self.current = None
        self.since = self._server.now
        if not request.keep_alive or self._server.is_stopping or (self._eof and not self._ahead):
            self._hang_up(is_done=request.is_complete)
        elif self._ahead and self._task is None:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take up the next request that was sent ahead, once the client has read the answers before it."""
        if self.current is not None or not self._ahead or self.is_full or self._transport is None:
            return
        upcoming = self._ahead.popleft()
        if isinstance(upcoming, Problem):
            self._refuse(upcoming)
            return
        self.current = upcoming  # before more is parsed, which must not come before it
        if self._unfed:
            data, self._unfed = self._unfed, b""
            self._feed(data)
        self.adjust_reading()
        self._server.handle(upcoming)

    def _malformed(self, data: bytes, error: httptools.HttpParserError) -> None:
        """What came is not HTTP/1.1. Whatever came before it is answered first."""
        request = self._incoming
        if request is not None:
            self._cut(request)
        elif self._lingers or (self.current is not None and not self.current.keep_alive):
            self._stop_parsing()  # the client has said that nothing would follow
        elif isinstance(error, httptools.HttpParserInvalidMethodError):
            self._break_off(Problem("method_unknown", "there is no such method; methods are in upper case"))
        else:
            reason = "this server speaks HTTP/1.1" if data.startswith(_HTTP_2) else str(error)
            self._break_off(Problem("malformed_request", f"the request cannot be understood: {reason}"))

    def _cut(self, request: Request) -> None:
        """The body of a request is broken: nothing after it can be understood."""
        self._incoming = None
        self._stop_parsing()
        request.cut()
        request.keep_alive = False
        if not self._is_handed_over:
            self._hand_over(request)

    def _break_off(self, problem: Problem) -> None:
        """Answer with a problem in its turn, and hang up then."""
        self._incoming = None
        self._stop_parsing()
        if self.current is None and not self._ahead and not self.is_full:
            self._refuse(problem)
        else:
            self._ahead.append(problem)

    def _refuse(self, problem: Problem) -> None:
        """Answer what is not a request that could be handled, and hang up."""
        body = problem.body()
        framing = f"content-length: {len(body)}\r\nconnection: close\r\n"
        headers = problem.answer_headers()
        self.write(self.heads.encode(problem.status, self._server.common, headers, framing) + body)
        self._hang_up(is_done=False)

    # Reading, writing and hanging up

    def adjust_reading(self) -> None:
        """Read only while there is room for what comes."""
        request = self._incoming
        wants = not self._ahead and (request is None or request.buffered_bytes <= BUFFERED_BYTES_MAX)
        if self._transport is not None and not self._lingers and wants != self._is_reading:
            self._is_reading = wants
            if wants:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _stop_parsing(self) -> None:
        """Throw away whatever comes from now on."""
        self._lingers = True
        self._unfed = b""
        if self._transport is not None and not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()

    @property
    def ends_soon(self) -> bool:
        """Whether the server stops, so that the next answer is the last one."""
        return self._server.is_stopping

    @property
    def is_lost(self) -> bool:
        """Whether there is nobody to write to."""
        return self._transport is None

    @property
    def unread_bytes(self) -> int:
        """What was written and the client has not read, as far as that is ours and not the system's."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self.is_full:
                self._server.look_at_unread()

    def write_all(self, pieces: Sequence[bytes]) -> None:
        """Send several pieces without putting them together."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)
            if self.is_full:
                self._server.look_at_unread()

    async def drained(self) -> None:
        """Wait until the client has read enough to be sent more."""
        while self.is_full and self._transport is not None:
            self._room_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._room_waiter
            finally:
                self._room_waiter = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with an answer in a task."""
        self._task = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self.abort()
            self._server.failed(task.exception())
        self._go_on()

    def abort(self) -> None:
        """Hang up at once, and forget what was not sent."""
        if self._transport is not None:
            self._transport.abort()

    def _hang_up(self, is_done: bool) -> None:
        """Hang up once everything is sent. A client that may still be sending is listened to for a while:
        hanging up on it would take its answer away from it before it has read that.
        """
        if self._transport is None:
            return
        if is_done or self._eof or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._stop_parsing()
        self.since = self._server.now
        self._transport.write_eof()

    def close_if_idle(self) -> None:
        """The server stops: hang up, unless a request is being answered or has begun to arrive."""
        if self.current is None and not self._ahead and self._incoming is None and not self._in_head:
            self._hang_up(is_done=True)

    def look(self, now: float, keep_alive_seconds: float) -> None:
        """See whether the client takes too long; called now and then."""
        if self.current is not None or self._ahead:
            return
        unread, before, self._unread_before = self.unread_bytes, self._unread_before, self.unread_bytes
        if unread < before:
            self.since = now  # it is still reading its answer
        age = now - self.since
        if unread:
            if age > keep_alive_seconds:
                self.abort()
        elif self._lingers:
            if age > LINGER_SECONDS:
                self.abort()
        elif self._incoming is not None:
            if age > LATE_SECONDS and not self._is_handed_over:
                self._hand_over(self._incoming)
        elif self._in_head:
            if age > HEAD_SECONDS:
                self._break_off(Problem("head_timeout", f"the head did not arrive within {HEAD_SECONDS:g} s"))
        elif age > keep_alive_seconds:
            self._hang_up(is_done=True)


def _head_too_large() -> Problem:
    message = f"a request head may have {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers"
    return Problem("head_too_large", message)


def _origin_form(target: bytes) -> str:
    """The path and query of a request's target, which may be a whole URL."""
    text = target.decode("ascii", "replace")
    if not text.startswith("/") and "://" in text:
        _, _, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        text = f"/{path}" if slash else "/" + host[len(host.partition("?")[0]) :]
    return text
