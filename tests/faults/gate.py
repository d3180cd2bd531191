"""A gate before an S3 server: it lets everything through, slows it down, or answers 500 itself."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Gate:
    """Forwards connections. Whoever changes `delay_seconds` or `is_broken` also ends those that are open."""

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        self._target = (address.hostname or "", address.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.delay_seconds = 0.0
        self.is_broken = False
        self.passed_count = 0
        """How often something was passed on to the server: at least once for every request."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where S3 seems to be."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def set(self, delay_seconds: float = 0.0, is_broken: bool = False) -> None:
        """How it is from now on."""
        self.delay_seconds, self.is_broken = delay_seconds, is_broken
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        try:
            with connection, contextlib.suppress(OSError):
                if self.is_broken:
                    connection.recv(1 << 16)
                    connection.sendall(_ERROR)
                    return
                with socket.create_connection(self._target) as target:
                    self._open.add(target)
                    back = threading.Thread(target=self._pump, args=(target, connection, 0.0), daemon=True)
                    back.start()
                    self._pump(connection, target, self.delay_seconds, counts=True)
                    back.join()
                    self._open.discard(target)
        finally:
            self._open.discard(connection)

    def _pump(
        self, source: socket.socket, sink: socket.socket, delay_seconds: float, counts: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(delay_seconds)
                self.passed_count += counts
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
