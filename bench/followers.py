"""Readers that follow a bucket's feed while it is written, each in a thread, and keep all that they get.

They do as little as can be while a measurement runs: what they got is looked at afterwards.
"""

import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Protocol

from .client import get
from .failure import Failed
from .servers import Server

CATCH_UP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.005
REST_SECONDS = 0.5
READ_BYTES = 1 << 18
TIMEOUT_SECONDS = 60.0

_ID = b"\nid: "
_ID_BYTES = len(_ID) + 20 + 2
_DATA = b"event: data\n"


class Follower(Protocol):
    """Where a reader is, and what it has."""

    offset: str

    def __init__(self, server: Server, path: str, offset: str) -> None: ...

    def run(self) -> None:
        """Follow until told to stop."""
        ...

    def stop(self) -> None:
        """Break off."""
        ...

    def lines(self) -> list[bytes]:
        """Every row that came, in order."""
        ...


class PollFollower:
    """A reader that asks for more as soon as it has an answer."""

    def __init__(self, server: Server, path: str, offset: str) -> None:
        self.offset = offset
        self._path = path
        self._bodies: list[bytes] = []
        self._stopped = False
        self._socket = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_SECONDS)

    def run(self) -> None:
        """Follow until told to stop."""
        with self._socket.makefile("rb") as answers:
            while not self._stopped:
                query = f"offset={self.offset}&live=long-poll&timeout=30"
                self._socket.sendall(f"GET {self._path}?{query} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
                self._read(answers)

    def stop(self) -> None:
        """Break off."""
        self._stopped = True
        _shut(self._socket)

    def lines(self) -> list[bytes]:
        """Every row that came, in order."""
        return b"".join(self._bodies).splitlines()

    def _read(self, answers: BinaryIO) -> None:
        """One answer. By hand, since a parser of headers takes longer than all the rest."""
        length, offset = 0, self.offset
        status = answers.readline()
        while (line := answers.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
            elif name == b"stream-next-offset":
                offset = value.strip().decode()
        if self._stopped:
            return
        if status.split(b" ")[1:2] not in ([b"200"], [b"204"]):
            raise Failed(f"a long-poll of the feed was answered with {status!r}")
        self._bodies.append(answers.read(length))
        self.offset = offset


class EventFollower:
    """A reader of server-sent events that resumes when the server ends the connection."""

    def __init__(self, server: Server, path: str, offset: str) -> None:
        self.offset = offset
        self.connections = 0
        self._path = path
        self._pieces: list[bytes] = []
        self._stopped = False
        self._server = server
        self._connection = self._connect()

    def run(self) -> None:
        """Follow until told to stop."""
        while not self._stopped:
            self._follow(self._connection)
            if not self._stopped:
                self._connection.close()
                self._connection = self._connect()

    def stop(self) -> None:
        """Break off."""
        self._stopped = True
        _shut(self._connection.sock)

    def lines(self) -> list[bytes]:
        """Every row that came, in order."""
        events = b"".join(self._pieces).split(b"\n\n")
        data = [event[len(_DATA) :] for event in events if event.startswith(_DATA)]
        return [line.removeprefix(b"data:") for event in data for line in event.split(b"\n")]

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=TIMEOUT_SECONDS)
        connection.connect()
        self.connections += 1
        return connection

    def _follow(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", f"{self._path}?offset={self.offset}&live=sse")
        response = connection.getresponse()
        if response.status != 200:
            raise Failed(f"a subscription to the feed was answered with {response.status}")
        end = b""
        while piece := response.read1(READ_BYTES):
            self._pieces.append(piece)
            end = (end + piece)[-READ_BYTES - _ID_BYTES :]
            at = end.rfind(_ID, 0, len(end) - _ID_BYTES + len(_ID))
            if at >= 0:
                self.offset = end[at + len(_ID) : at + len(_ID) + 20].decode()


class Following:
    """Several followers from one place on, and what there was to get."""

    def __init__(self, server: Server, path: str, kinds: tuple[type[Follower], ...]) -> None:
        self._server, self._path = server, path
        self._start = _tail(server, path)
        self.followers = tuple(kind(server, path, self._start) for kind in kinds)
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(follower,), daemon=True) for follower in self.followers
        ]

    def start(self) -> None:
        """Begin to follow."""
        for thread in self._threads:
            thread.start()

    def await_all(self) -> float:
        """Wait until everyone has what is there now; the seconds that it took."""
        begun = time.perf_counter()
        tail = _tail(self._server, self._path)
        while min(follower.offset for follower in self.followers) < tail:
            if self._failure is not None:
                raise Failed(f"a follower of the feed failed: {self._failure!r}")
            if time.perf_counter() - begun > CATCH_UP_SECONDS_MAX:
                raise Failed(f"a follower of the feed did not reach its end, {tail}")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - begun

    def await_rest(self) -> None:
        """Wait for what the load had sent but not waited for, too."""
        time.sleep(REST_SECONDS)
        self.await_all()

    def stop(self) -> None:
        """Break off."""
        for follower in self.followers:
            follower.stop()
        for thread in self._threads:
            thread.join()

    def wrong_rows(self, appends: int) -> int:
        """How many rows were missed, repeated or out of order, of so many appends, by all followers."""
        expected = _catch_up(self._server, self._path, self._start)
        there = sum(b'"kind":"append"' in line for line in expected)
        return abs(appends - there) + sum(_wrong(expected, each.lines()) for each in self.followers)

    def _run(self, follower: Follower) -> None:
        try:
            follower.run()
        except (Failed, OSError, http.client.HTTPException, ValueError) as failure:
            self._failure = failure


@contextmanager
def following(server: Server, path: str, *kinds: type[Follower]) -> Iterator[Following]:
    """One follower of each kind until the block ends."""
    made = Following(server, path, kinds)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _wrong(expected: list[bytes], found: list[bytes]) -> int:
    if expected == found:
        return 0
    missed, repeated = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return missed.total() + repeated.total() or 1


def _tail(server: Server, path: str) -> str:
    return str(get(server, f"{path}?offset=now").headers["Stream-Next-Offset"])


def _catch_up(server: Server, path: str, offset: str) -> list[bytes]:
    """Every row after an offset."""
    lines: list[bytes] = []
    while True:
        answer = get(server, f"{path}?offset={offset}")
        lines += answer.body.splitlines()
        offset = answer.headers["Stream-Next-Offset"]
        if answer.headers.get("Stream-Up-To-Date") == "true":
            return lines


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):  # the other side was first
        connected.shutdown(socket.SHUT_RDWR)
