"""Connections: how many, how slow, and what may be done with one."""

import os
import re
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.events import Events
from tests.http.in_process import serving
from tests.http.raw import CutOff, Raw, ask
from tests.http.signs import until_gone, wait_until_waiting
from tests.http.wire import BINARY, CLOSED, TEXT, content, make, offset, post
from tests.scrape import scrape
from tests.server import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.one_node("what it counts and limits is that of one process")

MEBIBYTE = 1 << 20


def test_pipelined_requests_are_answered_in_order(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    count = 50
    with Raw(server) as raw:
        for number in range(count):
            raw.ask("POST", path, "Content-Type: text/plain", body=b"%02d" % number)
            raw.ask("GET", f"{path}?offset={number * 2}")
        for number in range(count):
            assert raw.answer().headers["stream-next-offset"] == offset(number * 2 + 2)
            assert raw.answer().body == b"%02d" % number
    assert content(api, path) == b"".join(b"%02d" % number for number in range(count))


def test_pipelined_requests_sent_as_one_piece_or_byte_by_byte(server: Server, path: str) -> None:
    requests = [
        f"PUT {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\na",
        f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        "1\r\nb\r\n0\r\n\r\n",
        f"GET {path}-missing HTTP/1.1\r\nHost: t\r\n\r\n",
        f"HEAD {path}-missing HTTP/1.1\r\nHost: t\r\n\r\n",
        f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n",
        f"DELETE {path} HTTP/1.1\r\nHost: t\r\n\r\n",
    ]
    everything = "".join(requests).encode()
    for size in (len(everything), 1):
        with Raw(server) as raw:
            for start in range(0, len(everything), size):
                raw.send(everything[start : start + size])
            statuses = [raw.answer(head=request.startswith("HEAD")).status for request in requests]
            assert statuses == [201, 204, 404, 404, 200, 204]


def test_a_client_may_ask_for_the_end_of_the_connection(server: Server) -> None:
    with Raw(server) as raw:
        assert raw.ask("GET", "/healthz", "Connection: close").answer().status == 200
        assert raw.until_closed() == b""


def test_an_old_client_is_served(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"hello")
    for query in ("", "?offset=-1&live=sse"):
        with Raw(server) as raw:
            raw.send(f"GET {path}{query} HTTP/1.0\r\n\r\n".encode())
            status, headers = raw.begin()
            assert status == 200
            assert "transfer-encoding" not in headers
            body = raw.until_closed()
            assert body == b"hello" if not query else b"data:hello\n" in body


def test_without_a_host_the_location_is_where_the_server_says_it_is(server: Server, path: str) -> None:
    with Raw(server) as raw:
        raw.send(f"PUT {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        location = raw.begin()[1]["location"]
    assert location == f"{server.url}{path}"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/stream/a b HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: t\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: t\r\nX: a\x00b\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Many: x\r\n" * 10_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda garbage: repr(garbage[:24]),
)
def test_garbage_is_refused_and_the_server_lives(server: Server, garbage: bytes) -> None:
    with Raw(server) as raw:
        try:
            raw.send(garbage).finish_sending()
            data = raw.until_closed()
        except OSError:
            data = b""
        assert data == b"" or re.match(rb"HTTP/1\.[01] (4\d\d|501) ", data), data[:100]
    assert ask(server, "GET", "/healthz").status == 200


def test_a_connection_over_the_limit_is_told_so_until_another_one_ends(
    start_server: StartServer, path: str
) -> None:
    server = start_server(limits__connections="4")
    held = [Raw(server) for _ in range(4)]
    for raw in held:
        assert raw.ask("GET", "/healthz").answer().status == 200
    for _ in range(3):
        refused = ask(server, "PUT", path, body=b"")
        assert (refused.status, refused.code) == (503, "too_many_connections")
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
    held.pop().close()
    assert wait_for(lambda: ask(server, "PUT", path, body=b"").status in (200, 201))
    for raw in held:
        assert raw.ask("GET", path).answer().status == 200
        raw.close()


def test_without_free_files_the_server_says_so_and_recovers(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", prefix=("prlimit", "--nofile=400:400"))
    with server:
        assert [entry["message"] for entry in server.complaints() if "ulimit -n" in entry["message"]]
        held: list[Raw] = []
        try:
            for _ in range(600):
                held.append(Raw(server))
            statuses = [status_or_end(raw) for raw in held]
            served = statuses.count(200)
            assert served >= 150, "as many as there are files but for a reserve"
            assert statuses[:served] == [200] * served
            assert set(statuses[served:]) <= {503, None}
            assert 503 in statuses
            used = cpu_seconds(server)
            time.sleep(1)
            assert cpu_seconds(server) - used < 0.5, "it does not spin"
            assert held[0].ask("PUT", "/v1/stream/kept", body=b"x").answer().status == 201, "a file is free"
        finally:
            for raw in held:
                raw.close()
        assert wait_for(lambda: ask(server, "GET", "/healthz").status == 200)
        assert server.stop() == 0


def status_or_end(raw: Raw) -> int | None:
    """The status of an answer, or None if the server just hangs up."""
    try:
        return raw.ask("GET", "/healthz").answer().status
    except (CutOff, ConnectionError):
        return None


def cpu_seconds(server: Server) -> float:
    """How long the server has used a processor."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_slow_reader_holds_little_hinders_nobody_and_misses_nothing(
    start_server: StartServer, path: str
) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        lazy = [Raw(server).ask("GET", f"{path}?offset=-1&live=sse") for _ in range(10)]
        with Events(server, path) as eager:
            eager.control()
            before = server.rss_bytes
            line = b"x" * (MEBIBYTE // 4)
            for number in range(80):
                post(api, path, line, TEXT)
                if number < 3:
                    assert eager.data() == line
                    eager.control()
        stored = 80 * len(line)
        assert server.rss_bytes - before < stored + 10 * MEBIBYTE + 60 * MEBIBYTE
        for raw in lazy:
            with raw:
                assert raw.begin()[0] == 200
                events = b""
                while events.count(b"x") < stored:
                    events += raw.chunk()
                assert events.count(line) == 80


def test_answers_that_nobody_reads_are_bounded_together(start_server: StartServer, path: str) -> None:
    limit, answer = 16 * MEBIBYTE, 8 * MEBIBYTE
    server = start_server(limits__unread_bytes=str(limit))
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, BINARY)
        post(api, path, b"x" * answer)
        before = server.rss_bytes
        idle = [Raw(server).ask("GET", f"{path}?offset=0&max_bytes={answer}") for _ in range(40)]
        assert wait_for(lambda: len(server.complaints()) > 0)
        assert wait_for(lambda: scrape(api).value("ursula_http_unread_bytes") <= limit)
        assert wait_for(lambda: server.rss_bytes - before < 10 * answer)
        assert all("did not read" in entry["message"] for entry in server.complaints())
        ended = scrape(api).value("ursula_http_slow_clients_ended_total")
        assert 30 <= ended < 40, "the slowest, and not all of them"
        assert len(api.get(f"{path}?offset=0", params={"max_bytes": answer}).content) == answer
        for raw in idle:
            raw.close()


def test_little_that_each_of_many_does_not_read_counts_too(tmp_path: Path, path: str) -> None:
    """Each has less unread than makes the server pause it, and all together more than they may."""
    limit, readers, message = 256 * 1024, 40, b"x" * 30_000
    with (
        serving(tmp_path, unread_bytes=limit, send_buffer_bytes=4096) as place,
        httpx.Client(base_url=f"http://{place.host}:{place.port}", timeout=60) as api,
    ):
        make(api, path, TEXT)
        idle = [
            Raw(place, buffer_bytes=4096).ask("GET", f"{path}?offset=-1&live=sse") for _ in range(readers)
        ]
        assert wait_for(lambda: scrape(api).value("ursula_live_connections", kind="sse") == readers)
        post(api, path, message, TEXT)
        assert wait_for(lambda: scrape(api).value("ursula_http_slow_clients_ended_total") > 0)
        assert 0 < scrape(api).value("ursula_http_unread_bytes") <= limit
        for raw in idle:
            raw.close()


def test_very_many_idle_followers_hold_little_of_what_they_do_not_read(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        api.put("/many")
        make(api, "/many/s", TEXT)
        kinds = ("/many/s?offset=-1&live=sse", "/many?offset=-1&live=sse")
        idle = [Raw(server, buffer_bytes=4096).ask("GET", kinds[number % 2]) for number in range(400)]
        assert wait_for(lambda: scrape(api).value("ursula_live_connections", kind="sse") == len(idle))
        before = server.rss_bytes
        for _ in range(40):
            post(api, "/many/s", b"x" * (MEBIBYTE // 4), TEXT)
        assert server.rss_bytes - before < 200 * MEBIBYTE, "10 MiB for each would be 4 GB"
        for raw in idle:
            raw.close()


def test_clients_that_come_and_go_leave_nothing_behind(start_server: StartServer, path: str) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        typed = "Content-Type: text/plain"

        def come_and_go() -> None:
            clients = [Raw(server) for _ in range(400)]
            for number, raw in enumerate(clients):
                kind = number % 4
                if kind == 0:
                    raw.ask("GET", f"{path}?offset=now&live=sse")
                elif kind == 1:
                    raw.ask("GET", f"{path}?offset=now&live=long-poll&timeout=60")
                elif kind == 2:
                    raw.ask("POST", path, typed, "Content-Length: 10").send(b"cut")
                else:
                    raw.ask("POST", path, typed, "Transfer-Encoding: chunked").send(b"5\r\ncut")
            for live in ("sse", "long_poll"):
                wait_until_waiting(api, live, 100)
            for raw in clients:
                raw.close()
            for live in ("sse", "long_poll"):
                wait_until_waiting(api, live, 0)

        for _ in range(3):
            come_and_go()
        before = server.rss_bytes
        with until_gone(api):
            for _ in range(10):
                come_and_go()
        assert server.rss_bytes - before < 12 * MEBIBYTE, "about 8 KiB for each that is not let go"
        assert content(api, path) == b""
    assert server.complaints() == []
    assert server.stop() == 0


def test_a_stop_ends_live_reads_at_an_event_boundary(start_server: StartServer, path: str) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT, b"hello")
        poll = Raw(server).ask("GET", f"{path}?offset=5&live=long-poll&timeout=60")
        wait_until_waiting(api, "long_poll")
    idle = Raw(server)
    idle.ask("GET", "/healthz").answer()
    codes: list[int] = []
    with Events(server, path) as events:
        assert events.data() == b"hello"
        events.control()
        stopping = threading.Thread(target=lambda: codes.append(server.stop()))
        stopping.start()
        assert events.rest() == []
        assert poll.answer().status == 204
        stopping.join()
    assert codes == [0]
    for raw in (poll, idle):
        raw.close()
    server.start()
    assert ask(server, "GET", path).body == b"hello"


def test_a_kept_connection_is_told_apart_from_a_dead_one_after_a_restart(
    start_server: StartServer, path: str
) -> None:
    server = start_server()
    ask(server, "PUT", path, body=b"kept")
    with Raw(server) as raw:
        raw.ask("GET", path).answer()
        server.kill()
        with pytest.raises((CutOff, ConnectionError)):
            raw.ask("GET", path).answer()
    server.start()
    assert ask(server, "GET", path).body == b"kept"


_IMPATIENT = """
import sys
import ursula.http.wire.connection
from ursula.cli import main

ursula.http.wire.connection.HEAD_SECONDS = 0.5
sys.argv = ["ursula", *sys.argv[6:]]
main()
"""


def test_an_idle_connection_is_closed_and_one_that_follows_is_not(tmp_path: Path, path: str) -> None:
    script = tmp_path / "impatient.py"
    script.write_text(_IMPATIENT)
    settings = {"http.sse_heartbeat": "300ms", "http.keep_alive": "1s"}
    with Server(tmp_path / "data", prefix=(sys.executable, str(script)), settings=settings) as server:
        assert ask(server, "PUT", path, "Content-Type: text/plain", body=b"hello").status == 201
        with Raw(server) as used, Raw(server) as fresh, Raw(server) as half, Raw(server) as following:
            following.ask("GET", f"{path}?offset=now&live=sse").begin()
            assert used.ask("GET", "/healthz").answer().status == 200
            half.send(b"GET /healthz HTTP/1.1\r\nHost: te")
            answer = half.answer()
            assert (answer.status, answer.code) == (408, "head_timeout")
            assert [raw.until_closed() for raw in (used, fresh, half)] == [b"", b"", b""]
            assert ask(server, "POST", path, "Content-Type: text/plain", body=b"more").status == 204
            found = b""
            while b"data:more" not in found:
                found += following.chunk()
