"""Turning bytes into requests: feeds llhttp, and handles what it finds.

A request with a small body is handed over when all of it has arrived, any other as soon as its head has.

llhttp cannot be paused. So it is fed a little at a time, except for bodies of known length, and the limits
are checked after each piece.
"""

from typing import TYPE_CHECKING, Any

import httptools

from ..errors import Problem
from .head import Head
from .headers import RequestHeaders, header_name
from .request import BUFFERED_BYTES_MAX, Request

if TYPE_CHECKING:
    from .connection import Connection
    from .server import WireServer

HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 128
PIECE_BYTES = 8 * 1024
PIPELINED_MAX = 16
"""How many requests are parsed ahead of the one that is being answered; the bytes of others wait."""

SMALL_BODY_BYTES = 16 * 1024
"""Bodies up to this size are handed over whole. Until then they are not counted, so it must be small."""

_HTTP_2 = b"PRI * HTTP/2"


class RequestParser:
    """The incoming side of one connection. llhttp calls the methods `on_*`."""

    __slots__ = (
        "_connection",
        "_head_bytes",
        "_headers",
        "_llhttp",
        "_method",
        "_missing_bytes",
        "_server",
        "_target",
        "bytes_since_progress",
        "in_head",
        "incoming",
        "is_handed_over",
        "is_stopped",
        "raw_head",
        "unparsed",
    )

    _connection: "Connection"
    _headers: RequestHeaders
    _llhttp: Any
    _method: bytes
    _target: bytes

    def __init__(self, connection: "Connection", server: "WireServer") -> None:
        self._connection = connection
        self._server = server
        self._llhttp = httptools.HttpRequestParser(self)
        self.incoming: Request | None = None  # the request whose body is arriving
        self.is_handed_over = False
        self.is_stopped = False
        self.in_head = False
        self.bytes_since_progress = 0  # fed since the last head, chunk or part of a body
        self.unparsed = b""
        self.raw_head = b""  # the head that llhttp is about to see, if it begins a message
        self._head_bytes = 0
        self._missing_bytes = 0  # of a body whose length is known

    def feed(self, data: bytes) -> None:
        """Parse bytes, as long as the connection has room for more requests."""
        while data and not self.is_stopped:
            if len(self._connection.pipelined) >= PIPELINED_MAX:
                self.unparsed = data
                break
            size = max(PIECE_BYTES, self._missing_bytes)
            piece, data = (data, b"") if len(data) <= size else (data[:size], data[size:])
            data = self._parse(piece) + data
        if not self.is_stopped and self.incoming is not None:
            self._check_body(self.incoming)

    def feed_unparsed(self) -> None:
        """Parse the bytes that had to wait."""
        data, self.unparsed = self.unparsed, b""
        self.feed(data)

    def end_of_input(self) -> None:
        """The client will send nothing more: a request without its whole body is handed over as it is."""
        request = self.incoming
        if request is not None:
            request.cut()
            if not self.is_handed_over:
                self._connection.hand_over(request)

    def stop(self) -> None:
        """Discard all bytes from now on."""
        self.is_stopped = True
        self.unparsed = b""

    def close(self) -> None:
        """The connection is lost. No reference cycle is left for the garbage collector."""
        if self.incoming is not None:
            self.incoming.cut()
            self.incoming = None
        del self._llhttp, self._connection

    def _parse(self, piece: bytes) -> bytes:
        """Feed llhttp. Returns bytes that must be fed to a new one."""
        self.bytes_since_progress += len(piece)
        try:
            self._llhttp.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._restart_without_upgrade() + piece[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._reject_malformed(piece, error)
        else:
            if self.bytes_since_progress > HEAD_BYTES_MAX and not self.is_stopped:
                self._reject_endless()
        return b""

    def _restart_without_upgrade(self) -> bytes:
        """The head of a request to upgrade to another protocol, without the upgrade: we speak no other.

        llhttp takes whatever follows for that protocol, so a new parser continues.
        """
        self._llhttp = httptools.HttpRequestParser(self)
        self.bytes_since_progress = 0
        if self.is_stopped:
            return b""
        lines = [b"%s %s HTTP/1.1" % (self._method, self._target)]
        for name, values in self._headers.items():
            if name not in ("upgrade", "connection", "http2-settings"):
                lines += [b"%s: %s" % (name.encode(), value.encode()) for value in values]
                lines += [] if values else [b"%s: \xff" % name.encode()]  # non-ASCII stays non-ASCII
        return b"\r\n".join([*lines, b"", b""])

    def _check_body(self, request: Request) -> None:
        """Hand over a request that need not wait for its body, and stop reading if its handler is behind."""
        length = request.body_length
        is_small = length is not None and length <= SMALL_BODY_BYTES and not request.expects_continue
        if not self.is_handed_over and not is_small:
            self._connection.hand_over(request)
        if request.buffered_bytes > BUFFERED_BYTES_MAX:
            self._connection.adjust_reading()

    # Callbacks of llhttp

    def on_message_begin(self) -> None:
        """A request begins."""
        self.in_head = True
        self._headers = RequestHeaders()
        self._target = b""
        self._head_bytes = 0
        self._connection.since = self._server.now

    def on_url(self, url: bytes) -> None:
        """The target of the request, or a part of it."""
        self._target += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: those come after the body and are ignored."""
        if self.in_head:
            self._head_bytes += len(name) + len(value)
            self._headers.add(header_name(name), value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self.is_stopped:
            return
        llhttp = self._llhttp
        self.in_head = False
        self.bytes_since_progress = 0
        self._method = llhttp.get_method()
        if llhttp.should_upgrade():
            if self._method == b"CONNECT":
                self._reject(Problem("method_unknown", "CONNECT is for proxies, and this is not one"))
            return
        if self._head_bytes > HEAD_BYTES_MAX or len(self._headers) > HEADERS_MAX:
            self._reject(_head_too_large())
            return
        head = Head(
            self._method.decode("ascii"),
            _origin_form(self._target),
            self._headers,
            is_http_1_0=llhttp.get_http_version() != "1.1",
            keep_alive=llhttp.should_keep_alive(),
        )
        if self.raw_head:
            self._server.known_heads.note(self.raw_head, head)
            self.raw_head = b""
        request = self.incoming = Request(self._connection, head)
        self._missing_bytes = request.body_length or 0
        self.is_handed_over = False
        self._connection.since = self._server.now

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self.bytes_since_progress = 0
        if self.incoming is not None:
            self._missing_bytes -= len(data)
            self.incoming.feed(data)

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self.bytes_since_progress = 0

    def on_message_complete(self) -> None:
        """The body is complete."""
        request = self.incoming
        if request is None:
            return
        self.incoming = None
        self.bytes_since_progress = self._missing_bytes = 0
        request.complete()
        if not self.is_handed_over:
            self._connection.hand_over(request)

    # Input that is not a request

    def _reject_malformed(self, data: bytes, error: httptools.HttpParserError) -> None:
        """The input is not HTTP/1.1. Requests before it are answered first."""
        connection = self._connection
        if self.incoming is not None:
            self._cut_body(self.incoming)
        elif self.is_stopped or (connection.current is not None and not connection.current.keep_alive):
            connection.discard_input()  # the client has announced that nothing would follow
        elif isinstance(error, httptools.HttpParserInvalidMethodError):
            self._reject(Problem("method_unknown", "there is no such method; methods are in upper case"))
        else:
            reason = "this server speaks HTTP/1.1" if data.startswith(_HTTP_2) else str(error)
            self._reject(Problem("malformed_request", f"the request cannot be understood: {reason}"))

    def _reject_endless(self) -> None:
        """Reject an endless head, endless trailers, or an endless chunk extension."""
        if self.incoming is None:
            self._reject(_head_too_large())
        else:
            self._cut_body(self.incoming)

    def reject_late_head(self, seconds: float) -> None:
        """The head of a request has taken too long."""
        self._reject(Problem("head_timeout", f"the head did not arrive within {seconds:g} s"))

    def _reject(self, problem: Problem) -> None:
        self.incoming = None
        self._connection.answer_and_close(problem)

    def _cut_body(self, request: Request) -> None:
        """The body of a request is broken: nothing after it can be understood."""
        self.incoming = None
        self._connection.discard_input()
        request.cut()
        request.keep_alive = False
        if not self.is_handed_over:
            self._connection.hand_over(request)


def _head_too_large() -> Problem:
    message = f"a request head may have at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers"
    return Problem("head_too_large", message)


def _origin_form(target: bytes) -> str:
    """The path and query of a request's target, which may be a whole URL."""
    text = target.decode("ascii", "replace")
    if not text.startswith("/") and "://" in text:
        _, _, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        text = f"/{path}" if slash else "/" + host[len(host.partition("?")[0]) :]
    return text
