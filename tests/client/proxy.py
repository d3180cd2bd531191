"""A proxy that loses requests and answers, delays them, or answers itself, as a test says."""

import http.client
import select
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.http.raw import Place
from tests.server import Server


@dataclass(frozen=True)
class Fault:
    """What is done to one request. `passes_on` says whether the server sees it."""

    passes_on: bool = True
    delay_seconds: float = 0.0
    is_too_late: bool = False
    cut_after_bytes: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


FINE = Fault()
CUT_BEFORE = Fault(passes_on=False, cut_after_bytes=0)
CUT_AFTER = Fault(cut_after_bytes=0)
TOO_LATE = Fault(is_too_late=True)
"""The server takes it at once, and the client waits for the answer until it gives up."""


def late(seconds: float) -> Fault:
    """The server takes it at once, the answer comes later."""
    return Fault(delay_seconds=seconds)


def answer(status: int, code: str, retry_after: int | None = None, passes_on: bool = False) -> Fault:
    """The proxy's own answer, whether or not the server has seen the request."""
    body = f'{{"error":{{"code":"{code}","message":"said by the proxy"}}}}'.encode()
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Fault(passes_on, status=status, headers=headers, body=body)


class Proxy:
    """Stands before a server. `faults` are done to the next requests of a method, in order."""

    def __init__(self, server: Server | Place) -> None:
        self.faults: dict[str, deque[Fault]] = {"POST": deque(), "GET": deque(), "PUT": deque()}
        self.seen: list[dict[str, str]] = []
        self.targets: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _relay(self) -> None:
                proxy.relay(self, server)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _relay

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    def seqs(self) -> list[int]:
        """The producer numbers of the requests that came by, in order."""
        return [int(headers["producer-seq"]) for headers in self.seen if "producer-seq" in headers]

    def relay(self, handler: BaseHTTPRequestHandler, server: Server | Place) -> None:
        """Do to a request what is its turn."""
        handler.close_connection = True
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get("content-length", "0")))
        self.seen.append(headers)
        self.targets.append(handler.path)
        faults = self.faults.get(handler.command)
        fault = faults.popleft() if faults else FINE
        if not fault.passes_on and fault.status is None:
            return
        upstream = http.client.HTTPConnection(server.host, server.port, timeout=30)
        try:
            if fault.passes_on:
                upstream.request(handler.command, handler.path, body, headers)
                response = upstream.getresponse()
            time.sleep(fault.delay_seconds)
            if fault.is_too_late:
                select.select([handler.connection], [], [], 60)
                return
            if fault.status is not None:
                self._answer(handler, fault)
            else:
                self._pass_back(handler, response, fault.cut_after_bytes)
        except OSError:
            pass  # one of the two is gone, which the test sees at the other
        finally:
            upstream.close()

    def _answer(self, handler: BaseHTTPRequestHandler, fault: Fault) -> None:
        handler.send_response(fault.status or 500)
        own = {"Content-Length": str(len(fault.body)), "Connection": "close"}
        for name, value in {**fault.headers, **own}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(fault.body)

    def _pass_back(
        self, handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse, cut_after: int | None
    ) -> None:
        if cut_after == 0:
            response.read()
            return
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "connection"):
                handler.send_header(name, value)
        is_chunked = response.headers.get("content-length") is None and response.status != 204
        if is_chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Connection", "close")
        handler.end_headers()
        sent = 0
        while piece := response.read1(1024):
            piece = piece if cut_after is None else piece[: cut_after - sent]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
            sent += len(piece)
            if cut_after is not None and sent >= cut_after:
                handler.connection.shutdown(socket.SHUT_RDWR)
                return
        if is_chunked:
            handler.wfile.write(b"0\r\n\r\n")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
