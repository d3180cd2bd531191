"""Ten thousand clients that wait and then go away: nothing of them stays behind."""

import os
import resource
import select
import socket
import struct
import time
from pathlib import Path

from tests.faults.client import Client
from tests.faults.notes import note
from tests.faults.writers import BINARY
from tests.server import Server

CONNECTIONS = 10_000
SPARE_FILES = 600
STREAMS = 10
HELD_SECONDS = 2.5
"""Longer than two young collections of the server: what then remains is in the old generation."""

LONG_POLL = "live=long-poll&timeout=60"
SSE = "live=sse"


def connection_count() -> int:
    """How many connections are possible here, after raising the limit on open files as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        if limit < wanted:
            note(f"only {limit - SPARE_FILES} instead of {CONNECTIONS} connections: `ulimit -Hn` is {hard}")
            return limit - SPARE_FILES
    return CONNECTIONS


class Flock:
    """Many connections, each with one live read under way."""

    def __init__(self, server: Server, count: int, source: str) -> None:
        self._sockets: list[socket.socket] = []
        self._poll = select.epoll()
        self._answered: dict[int, bytes] = {}
        for number in range(count):
            live = SSE if number % 2 else LONG_POLL
            request = f"GET /v1/stream/live-{number % STREAMS}?offset=now&{live} HTTP/1.1\r\nHost: t\r\n\r\n"
            self._sockets.append(self._open(server, source, request.encode()))
            if number % 500 == 499:
                self._take_answers(0)

    def wait_for_events(self) -> None:
        """Wait until every SSE connection has its first event."""
        give_up_at = time.monotonic() + 60
        while missing := sum(b"event: control" not in self._answer(live) for live in self._sockets[1::2]):
            assert time.monotonic() < give_up_at, f"{missing} SSE connections have no event"
            self._take_answers(0.1)
        assert all(b"200 OK" in head for head in self._answered.values())

    def wait_for_news(self) -> None:
        """Wait until every connection has been told of an append."""
        give_up_at = time.monotonic() + 60
        while waiting := sum(not self._has_news(number) for number in range(len(self._sockets))):
            assert time.monotonic() < give_up_at, f"{waiting} were not told"
            self._take_answers(0.1)

    def _has_news(self, number: int) -> bool:
        news = b"event: data\ndata:bmV3cw==\n" if number % 2 else b"\r\n\r\nnews"
        return news in self._answer(self._sockets[number])

    def _answer(self, connection: socket.socket) -> bytes:
        """What came on a connection so far; an answer may come in bits."""
        return self._answered.get(connection.fileno(), b"")

    def drop(self, rudely: bool) -> None:
        """Hang up, half of them perhaps with a reset."""
        for number, connection in enumerate(self._sockets):
            if rudely and number % 4 < 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        self._poll.close()

    def _open(self, server: Server, source: str, request: bytes) -> socket.socket:
        connection = socket.socket()
        connection.bind((source, 0))
        connection.connect((server.host, server.port))
        connection.setblocking(False)
        assert connection.send(request) == len(request)
        self._poll.register(connection.fileno(), select.EPOLLIN)
        return connection

    def _take_answers(self, seconds: float) -> None:
        by_number = {connection.fileno(): connection for connection in self._sockets}
        for number, _ in self._poll.poll(seconds, 10_000):
            data = by_number[number].recv(1 << 16)
            assert data, "the server hung up"
            self._answered[number] = self._answered.get(number, b"") + data


def open_sockets(server: Server) -> int:
    """How many sockets the server has open."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(folder / name).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def wait_until_dropped(server: Server, before: int) -> None:
    """Wait until the server has closed what its clients have closed."""
    give_up_at = time.monotonic() + 60
    while (now := open_sockets(server)) > before:
        assert time.monotonic() < give_up_at, f"{now - before} connections are still open"
        time.sleep(0.1)


def test_ten_thousand_clients_that_go_away_leave_nothing_behind(tmp_path: Path) -> None:
    count = connection_count()
    settings = {"limits.connections": str(count + 100)}
    with Server(tmp_path / "data", settings=settings) as server:
        client = Client(server)
        for number in range(STREAMS):
            assert client.ask("PUT", f"/v1/stream/live-{number}", b"x", BINARY).status == 201
        base, sockets = server.rss_bytes, open_sockets(server)
        peaks, afters = [], []
        for cycle in range(3):
            flock = Flock(server, count, f"127.0.0.{cycle + 2}")
            flock.wait_for_events()
            time.sleep(HELD_SECONDS)
            peaks.append(server.rss_bytes)
            if cycle == 1:
                for number in range(STREAMS):
                    assert client.ask("POST", f"/v1/stream/live-{number}", b"news", BINARY).status == 204
                flock.wait_for_news()
            flock.drop(rudely=cycle != 1)
            wait_until_dropped(server, sockets)
            time.sleep(HELD_SECONDS)
            afters.append(server.rss_bytes)
            print(f"{peaks[-1] >> 20} MiB, then {afters[-1] >> 20} MiB; at first {base >> 20} MiB")
        growth = peaks[0] - base
        assert growth > count * 2048, "the connections were not there"
        # Some of it stays with Python's allocator, which uses it again.
        assert max(peaks) < peaks[0] + growth / 3, "something stays behind each time"
        assert max(afters) < peaks[0], "nothing came back"
        assert server.complaints() == []
        client.close()
        assert server.stop() == 0


def test_clients_that_hang_up_before_the_answer_do_no_harm(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        client = Client(server)
        assert client.ask("PUT", "/v1/stream/a", headers=BINARY).status == 201
        for number in range(2000):
            body = b"%08d" % number
            head = "POST /v1/stream/a HTTP/1.1\r\nHost: t\r\nContent-Type: application/octet-stream\r\n"
            connection = socket.create_connection((server.host, server.port))
            connection.sendall(head.encode() + b"Content-Length: 8\r\n\r\n" + body)
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        wait_until_dropped(server, 20)
        assert client.ask("POST", "/v1/stream/a", b"--last--", BINARY).status == 204
        data = client.read("/v1/stream/a")
        found = [data[at : at + 8] for at in range(0, len(data), 8)]
        assert b"--last--" in found
        assert len(found) == len(set(found)), "something was stored twice"
        assert set(found) <= {b"--last--", *(b"%08d" % number for number in range(2000))}
        assert server.complaints() == []
        client.close()
        assert server.stop() == 0
