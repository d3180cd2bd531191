"""Many streams that are written at once and read anywhere: more than memory may hold, each byte known."""

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from .client import OCTETS, create_streams
from .failure import Failed
from .servers import Server

STREAMS = 100
CONNECTIONS = 8
MESSAGE_BYTES = 64 << 10
READ_BYTES = 1 << 20
WAIT_SECONDS = 0.1
WAIT_SECONDS_MAX = 60.0

_POOL_BYTES = 16 << 20


class Scattered:
    """So many messages of random bytes over the streams in turn."""

    def __init__(self, server: Server, messages: int) -> None:
        self._server = server
        self._each = messages // STREAMS
        self._pool = random.Random(3).randbytes(_POOL_BYTES + MESSAGE_BYTES)
        self._counting = threading.Lock()
        self.held_back = 0
        """Appends that were asked to come again."""

    @property
    def size(self) -> int:
        """How much is written."""
        return self._each * STREAMS * MESSAGE_BYTES

    def write(self) -> None:
        """Write everything; a stream has one writer, so that its order is known."""
        create_streams(self._server, STREAMS)
        self._by_all(self._write_some)

    def read(self, total: int) -> None:
        """Read so many bytes, each time from anywhere."""
        self._by_all(lambda number, connection: self._read_some(number, connection, total // CONNECTIONS))

    def _by_all(self, work: Callable[[int, http.client.HTTPConnection], None]) -> None:
        def one(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=60)
            try:
                work(number, connection)
            finally:
                connection.close()

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            for done in [threads.submit(one, number) for number in range(CONNECTIONS)]:
                done.result()

    def _write_some(self, number: int, connection: http.client.HTTPConnection) -> None:
        for message in range(self._each):
            for stream in range(number, STREAMS, CONNECTIONS):
                self._append(connection, stream, message)

    def _append(self, connection: http.client.HTTPConnection, stream: int, message: int) -> None:
        start = self._start(stream, message)
        body = self._pool[start : start + MESSAGE_BYTES]
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            connection.request("POST", self._server.path(f"s{stream}"), body, OCTETS)
            response = connection.getresponse()
            response.read()
            if response.status == 204:
                return
            if response.status != 503 or time.monotonic() > give_up_at:
                raise Failed(f"an append was answered with {response.status}")
            with self._counting:
                self.held_back += 1
            time.sleep(WAIT_SECONDS)

    def _read_some(self, number: int, connection: http.client.HTTPConnection, total: int) -> None:
        draw = random.Random(number)
        while total > 0:
            stream = draw.randrange(STREAMS)
            offset = draw.randrange(max(1, self._each * MESSAGE_BYTES - READ_BYTES))
            path = f"{self._server.path(f's{stream}')}?offset={offset:020}&max_bytes={READ_BYTES}"
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or not body or not self._is_right(stream, offset, body):
                raise Failed(f"{len(body)} bytes from {offset} are not what was written ({response.status})")
            total -= len(body)

    def _is_right(self, stream: int, offset: int, body: bytes) -> bool:
        return b"".join(self._expected(stream, offset, len(body))) == body

    def _expected(self, stream: int, offset: int, count: int) -> Iterator[bytes]:
        end = offset + count
        while offset < end:
            message, within = divmod(offset, MESSAGE_BYTES)
            taken = min(end - offset, MESSAGE_BYTES - within)
            start = self._start(stream, message) + within
            yield self._pool[start : start + taken]
            offset += taken

    @staticmethod
    def _start(stream: int, message: int) -> int:
        """Where in the pool a message is: anywhere, but always the same."""
        return (stream * 7_368_787 + message * 2_750_159) % _POOL_BYTES
