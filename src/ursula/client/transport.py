"""What both shells tell httpx: timeouts, headers, and bodies that are read from a file while being sent."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from .steps import Request

DEFAULT_URL = "http://127.0.0.1:4437"
TIMEOUT_SECONDS = 30.0
PIECE_BYTES = 1 << 18


class FileBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request. It is opened anew for every try."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread(self._path.open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece
        finally:
            await asyncio.to_thread(file.close)


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Whom to trust; reading their list takes longer than a request, so it is done once."""
    return httpx.create_ssl_context()


class Wiring:
    """How to reach a server: what httpx needs to know for each request."""

    def __init__(self, url: str, auth: str | None, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.headers = {"user-agent": "ursula-client"} | ({} if auth is None else {"authorization": auth})

    def options(self) -> dict[str, Any]:
        """For the making of a client of httpx."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return {
            "timeout": self.timeout,
            "limits": limits,
            "follow_redirects": True,
            "verify": trusted_authorities(),
        }

    def request(self, request: Request) -> httpx.Request:
        """The request as httpx sends it."""
        url = httpx.URL(self.url + request.target)
        timeout = httpx.Timeout(self.timeout, read=self.timeout + request.wait_seconds)
        extensions = {"timeout": timeout.as_dict()}
        headers = {**self.headers, **request.headers}
        if not isinstance(request.body, Path):
            content = request.body or None
            return httpx.Request(request.method, url, headers=headers, content=content, extensions=extensions)
        # For a stream httpx adds nothing of its own.
        headers["host"] = url.netloc.decode()
        headers["content-length"] = str(request.body.stat().st_size)
        body = FileBody(request.body)
        return httpx.Request(request.method, url, headers=headers, stream=body, extensions=extensions)
