"""All connections: the limits on their number, on their idle time and on their unread bytes."""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable

from ...malloc import trim_malloc
from .connection import Connection
from .head import KnownHeads
from .headers import AnswerHeads
from .parser import SMALL_BODY_BYTES
from .request import Request

BACKLOG = 4096
CHECK_SECONDS = 0.5
LAST_REQUESTS_SECONDS = 0.2
CONNECTIONS_WORTH_A_TRIM = 1000
GRACE_SECONDS = 1.0
"""A client that has been behind for less than this is not disconnected: it may just have been sent a lot."""

logger = logging.getLogger(__name__)


class WireServer:
    """Accepts connections on a socket and passes on their requests."""

    handle: Callable[[Request], None]
    common: str

    def __init__(
        self,
        listener: socket.socket,
        connections_max: int,
        unread_bytes_max: int,
        keep_alive_seconds: float,
    ) -> None:
        self.heads = AnswerHeads()
        self.known_heads = KnownHeads(SMALL_BODY_BYTES)
        self.now = time.monotonic()
        self.behind: dict[Connection, float] = {}  # connections with unread bytes, and since when
        self.clients_ended = 0
        self.is_stopping = False
        self._listener = listener
        self._connections_max = connections_max
        self._unread_bytes_max = unread_bytes_max
        self._keep_alive_seconds = keep_alive_seconds
        self._connections: set[Connection] = set()
        self._connections_peak = 0
        self._checks_unread_soon = False
        self._empty = asyncio.Event()

    async def serve(
        self, handle: Callable[[Request], None], common: str, tls: ssl.SSLContext | None = None
    ) -> None:
        """Accept connections until cancelled, or until something fails, and have their requests handled.

        `common` has the header lines of responses to input that is not a request.
        """
        self.handle, self.common = handle, common
        loop = asyncio.get_running_loop()
        accepting = await loop.create_server(
            lambda: Connection(self), sock=self._listener, backlog=BACKLOG, ssl=tls
        )
        try:
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                self._check()
        finally:
            accepting.close()

    def pass_on_to(self, handle: Callable[[Request], None]) -> None:
        """Have requests handled by another part of the server from now on."""
        self.handle = handle

    async def stop(self, seconds_max: float) -> None:
        """Answer the requests that have arrived or are arriving, for a limited time, and hang up.

        Once `is_stopping` is set, a connection ends with its next response. One without a request ends a
        little later: hanging up at once would lose a request that its client is just sending.
        """
        self.is_stopping = True
        await asyncio.sleep(LAST_REQUESTS_SECONDS)
        for connection in tuple(self._connections):
            connection.close_if_idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        for connection in tuple(self._connections):
            connection.abort()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def unread_bytes(self) -> int:
        """How many bytes all clients together have not read."""
        return sum(connection.unread_bytes for connection in self.behind)

    def admit(self, connection: Connection) -> int:
        """Add a new connection. Returns by how much the limit on connections is now exceeded."""
        self._connections.add(connection)
        self._connections_peak = max(self._connections_peak, len(self._connections))
        return len(self._connections) - self._connections_max

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._connections.discard(connection)
        self.behind.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def log_failure(self, error: BaseException | None) -> None:
        """Log a bug that ends a connection."""
        logger.error("a connection failed", exc_info=error)

    def check_unread_soon(self) -> None:
        """Schedule a check whether clients leave too much unread, unless one is already scheduled."""
        if not self._checks_unread_soon:
            self._checks_unread_soon = True
            asyncio.get_running_loop().call_soon(self._bound_unread)

    def _bound_unread(self) -> None:
        """Disconnect the slowest readers if all clients together leave too much unread."""
        self._checks_unread_soon = False
        excess = self.unread_bytes - self._unread_bytes_max
        if excess <= 0:
            return
        is_dire = excess > self._unread_bytes_max
        latest = time.monotonic() - (0 if is_dire else GRACE_SECONDS)
        ended = 0
        for connection, since in tuple(self.behind.items()):  # those that have been behind longest come first
            if excess <= 0 or since > latest:
                break
            excess -= connection.unread_bytes
            del self.behind[connection]
            connection.abort()
            ended += 1
        if ended:
            self.clients_ended += ended
            self._connections_peak = len(self._connections) + CONNECTIONS_WORTH_A_TRIM
            logger.warning(
                "ended %d connections whose clients did not read: limits.unread_bytes was exceeded", ended
            )

    def _check(self) -> None:
        self.now = now = time.monotonic()
        self.heads.tick()
        self._trim_memory()
        for connection in tuple(self._connections):
            self._note_unread(connection, now)
            try:
                connection.check_timeouts(now, self._keep_alive_seconds)
            except Exception as error:
                self.log_failure(error)
                connection.abort()
        self._bound_unread()

    def _note_unread(self, connection: Connection, now: float) -> None:
        """Note unread bytes that are too few to pause a connection: over many connections they add up."""
        if not connection.unread_bytes:
            self.behind.pop(connection, None)
        elif connection not in self.behind:
            self.behind[connection] = now

    def _trim_memory(self) -> None:
        """Return memory to the system after many connections have ended."""
        count = len(self._connections)
        if self._connections_peak - count >= CONNECTIONS_WORTH_A_TRIM:
            self._connections_peak = count
            asyncio.get_running_loop().run_in_executor(None, trim_malloc)
