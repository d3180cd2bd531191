"""The arguments that both shells pass to httpx: URLs, timeouts, headers, and bodies read from a file."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from ..address import is_full_url
from .request_options import AsyncText, RequestOptions, ResolvedOptions
from .steps import Request

DEFAULT_URL = "http://127.0.0.1:4437"
TIMEOUT_SECONDS = 30.0
PIECE_BYTES = 1 << 18
USER_AGENT = {"user-agent": "ursula-client"}


class FileBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request. Every attempt opens it again."""

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
    """The trusted certificate authorities. Loading them takes longer than a request, so it is done once."""
    return httpx.create_ssl_context()


class Endpoint:
    """A server to send requests to: its URL, the usual timeout, and the caller's options."""

    def __init__(self, url: str, timeout: float, options: RequestOptions) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.options = options

    def plus(
        self, headers: Mapping[str, AsyncText] | None, params: Mapping[str, AsyncText] | None
    ) -> "Endpoint":
        """The same endpoint with more options."""
        return Endpoint(self.url, self.timeout, self.options.plus(headers, params))

    def httpx_options(self) -> dict[str, Any]:
        """Arguments for the constructor of an httpx client."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return {
            "timeout": self.timeout,
            "limits": limits,
            "follow_redirects": True,
            "verify": trusted_authorities(),
        }

    def httpx_request(self, request: Request, options: ResolvedOptions) -> httpx.Request:
        """A request as httpx sends it."""
        target = request.target(options.params)
        url = httpx.URL(target if is_full_url(target) else self.url + target)
        extensions = {"timeout": self._timeout(request).as_dict()}
        headers = {**USER_AGENT, **options.headers, **request.headers}
        if not isinstance(request.body, Path):
            content = request.body or None
            return httpx.Request(request.method, url, headers=headers, content=content, extensions=extensions)
        # httpx adds no headers of its own to a request with a stream.
        headers["host"] = url.netloc.decode()
        headers["content-length"] = str(request.body.stat().st_size)
        body = FileBody(request.body)
        return httpx.Request(request.method, url, headers=headers, stream=body, extensions=extensions)

    def _timeout(self, request: Request) -> httpx.Timeout:
        longest = math.inf if request.longest_seconds is None else request.longest_seconds
        read = min(self.timeout + request.wait_seconds, longest)
        return httpx.Timeout(min(self.timeout, longest), read=read)
