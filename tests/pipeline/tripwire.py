"""A proxy for a server that forwards everything, until a certain request."""

import contextlib
import re
import socket
import threading
from enum import Enum, auto
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit


class When(Enum):
    """What has happened to the request when the wire trips."""

    UNSENT = auto()
    UNANSWERED = auto()
    """It is sent, and the server is working on it."""
    UNHEARD = auto()
    """It is answered, and the client has not got the answer."""


class Request(NamedTuple):
    """A request that matches a pattern, by its number, and the moment in its life."""

    pattern: str
    number: int
    when: When


class Tripwire:
    """Forwards connections. Once it has tripped it holds them all; if it `mends`, it cuts only that one."""

    def __init__(self, endpoint: str, moment: Request, mends: bool = False) -> None:
        address = urlsplit(endpoint)
        self._target = (address.hostname or "", address.port or 0)
        self._pattern = re.compile(moment.pattern.encode() + rb"\S* HTTP/1\.1\r\n")
        self._left = moment.number
        self._when = moment.when
        self._mends = mends
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._tripped = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The address to use instead of the server's."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def has_tripped(self) -> bool:
        """Whether the moment has come."""
        return self._tripped.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def end(self) -> None:
        """Cut all connections, and accept no more."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, socket.create_connection(self._target) as target:
            ends = {connection, target}
            self._open |= ends
            awaited = threading.Event()
            back = threading.Thread(target=self._answers, args=(target, connection, awaited), daemon=True)
            back.start()
            self._requests(connection, target, awaited)
            back.join()
            self._open -= ends

    def _requests(self, source: socket.socket, server: socket.socket, awaited: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                is_it = self._is_the_moment(data)
                if is_it and self._when is When.UNHEARD:
                    awaited.set()
                elif is_it and self._when is When.UNSENT:
                    self._trip()
                self._hold()
                server.sendall(data)
                if is_it and self._when is When.UNANSWERED:
                    self._trip()
        _end(server)

    def _answers(self, server: socket.socket, sink: socket.socket, awaited: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if awaited.is_set():
                    self._trip()
                self._hold()
                sink.sendall(data)
        _end(sink)

    def _is_the_moment(self, data: bytes) -> bool:
        if not self._pattern.search(data):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def _trip(self) -> None:
        self._tripped.set()
        if self._mends:
            raise OSError("this connection is cut")

    def _hold(self) -> None:
        """Nothing passes a wire that has tripped, unless it mends."""
        if self.has_tripped and not self._mends:
            self._over.wait()
            raise OSError("the wire has tripped")


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
