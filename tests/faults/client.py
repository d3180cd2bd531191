"""A client that knows three ends of a request: answered, refused, or nobody knows."""

import http.client
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.http.raw import Place
from tests.server import Server

TIMEOUT_SECONDS = 60.0


class NoAnswer(Exception):
    """The connection ended before the answer was there: the request may have been carried out or not."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """One connection that is kept open, and opened again where the server hung up between requests."""

    def __init__(self, server: Server | Place) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_SECONDS)
        self._is_broken = False

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer, or NoAnswer."""
        self.begin(method, path, body, headers)
        return self.answer()

    def begin(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request. A body in pieces goes out as they come; without a Content-Length, in chunks."""
        try:
            self._connection.request(method, path, body, dict(headers or {}))
        except (OSError, http.client.HTTPException) as error:
            is_cut = isinstance(error, BrokenPipeError | ConnectionResetError)
            if is_cut and self._connection.sock is not None:
                self._is_broken = True  # perhaps it was answered before all of the body was there
                return
            self.close()  # a server that was killed may reset a connection while it is made
            raise NoAnswer(repr(error)) from None

    def answer(self) -> Answer:
        """The answer to the request that was sent, or NoAnswer."""
        try:
            response = self._connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise NoAnswer(repr(error)) from None
        if self._is_broken:
            self.close()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, data)

    def read(self, path: str) -> bytes:
        """Everything in a stream of bytes."""
        return b"".join(self.pages(path))

    def pages(self, path: str) -> list[bytes]:
        """Everything in a stream, in pages."""
        parts, offset = [], "-1"
        while True:
            answer = self.ask("GET", f"{path}?offset={offset}")
            assert answer.status == 200, answer
            parts.append(answer.body)
            offset = answer.headers["stream-next-offset"]
            if answer.headers.get("stream-up-to-date") == "true":
                return parts

    def close(self) -> None:
        """Hang up."""
        self._is_broken = False
        self._connection.close()
