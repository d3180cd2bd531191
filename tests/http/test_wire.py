"""HTTP/1.1 as a careful server speaks it, and clients that are careless, slow or hostile."""

import time
from collections.abc import Iterator

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import CutOff, Raw, ask
from tests.http.signs import until_gone, wait_until_clients_are_full, wait_until_waiting
from tests.http.surface import flush_all
from tests.http.wire import BINARY, CLOSED, TEXT, content, make, post
from tests.scrape import scrape
from tests.server import Server
from tests.waiting import wait_for

MEBIBYTE = 1 << 20
TYPED = "Content-Type: text/plain"
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")


@pytest.fixture(scope="module")
def impatient(start_server: StartServer) -> Server:
    """A server that does not keep idle connections for long."""
    return start_server(http__keep_alive="1s")


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[httpx.Client]:
    """A client of the shared server."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.mark.parametrize("body", [None, b"x", b"x" * 100_000])
def test_a_client_that_asks_for_http_2_is_served_in_http_1(
    server: Server, api: httpx.Client, path: str, body: bytes | None
) -> None:
    make(api, path, TEXT)
    with Raw(server) as raw:
        if body is None:
            assert raw.ask("GET", path, *H2C).answer().status == 200
        else:
            assert raw.ask("POST", path, TYPED, *H2C, body=body).answer().status == 204
        assert raw.ask("HEAD", path).answer(head=True).status == 200, "the connection goes on"
    assert content(api, path) == (body or b"")


def test_a_tunnel_is_not_made(server: Server) -> None:
    answer = ask(server, "CONNECT", "example.org:80")
    assert (answer.status, answer.code) == (501, "method_unknown")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("rest", [b"", b"garbage\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"])
@pytest.mark.parametrize("line", ["Connection: keep-alive", "Connection: close", "Proxy-Connection: close"])
def test_a_write_is_answered_whatever_its_client_does_next(
    server: Server, api: httpx.Client, path: str, line: str, rest: bytes
) -> None:
    make(api, path, TEXT)
    with Raw(server) as raw:
        raw.ask("POST", path, TYPED, line, body=b"x").send(rest).finish_sending()
        assert raw.answer().status == 204
    assert content(api, path) == b"x"


def test_a_slow_reader_may_take_longer_than_an_idle_connection(impatient: Server, path: str) -> None:
    size = 8 * MEBIBYTE
    with httpx.Client(base_url=impatient.url, timeout=60) as client:
        make(client, path, BINARY, b"x" * size)
    with Raw(impatient) as raw:
        raw.ask("GET", f"{path}?max_bytes={size}")
        status, headers = raw.begin()
        assert (status, int(headers["content-length"])) == (200, size)
        for _ in range(32):
            time.sleep(0.1)
            assert raw.take(size // 32) == b"x" * (size // 32)


@pytest.mark.parametrize("framing", ["Content-Length: 50000", "Transfer-Encoding: chunked"])
def test_too_many_headers_are_told_before_the_body_comes(server: Server, path: str, framing: str) -> None:
    with Raw(server) as raw:
        raw.ask("PUT", path, *[f"X-{number}: x" for number in range(130)], framing)
        answer = raw.answer()
        assert (answer.status, answer.code) == (431, "head_too_large")


@pytest.mark.one_node("measures the memory of one process")
@pytest.mark.parametrize(
    "endless",
    [b"0\r\nX-Trailer: ", b"0\r\n" + b"X: y\r\n" * 1000, b"1;ext="],
    ids=["value", "lines", "chunk"],
)
def test_a_chunked_body_without_an_end_takes_neither_time_nor_memory(
    server: Server, api: httpx.Client, path: str, endless: bytes
) -> None:
    make(api, path, TEXT)
    flush_all(api)
    before = server.rss_bytes
    with Raw(server) as raw:
        raw.ask("POST", path, TYPED, "Transfer-Encoding: chunked").send(b"5\r\nhello\r\n" + endless)
        more = b"X: y\r\n" * 10_000 if b"\r\nX: " in endless else b"x" * 60_000
        try:
            for _ in range(200):
                raw.send(more)
            answer = raw.answer()
            assert (answer.status, answer.code) == (400, "body_incomplete")
        except (ConnectionError, CutOff):
            pass  # it has hung up on us meanwhile
    assert server.rss_bytes - before < 10 * MEBIBYTE
    assert content(api, path) == b""


@pytest.mark.one_node("measures the memory of one process")
def test_requests_that_are_sent_ahead_take_little(start_server: StartServer, path: str) -> None:
    server = start_server()
    ask(server, "PUT", path, TYPED, body=b"x")
    many = f"GET {path} HTTP/1.1\r\n\r\n".encode() * 5000
    before = server.rss_bytes
    waiting = [Raw(server).ask("GET", f"{path}?offset=now&live=long-poll&timeout=10") for _ in range(30)]
    for raw in waiting:
        raw.send(many)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        wait_until_waiting(client, "long_poll", 30)
        scrape(client)  # and meanwhile it has read what it reads ahead
    assert server.rss_bytes - before < 40 * MEBIBYTE, "2.4 MiB for each would be 72 MiB"
    for number, raw in enumerate(waiting):
        with raw:
            assert raw.answer().status == 204
            for _ in range(5000 if number == 0 else 1):
                assert raw.answer().body == b"x"


@pytest.mark.one_node("measures the memory of one process")
def test_answers_are_not_piled_up_for_a_client_that_does_not_read(
    start_server: StartServer, path: str
) -> None:
    server = start_server()
    size = 8 * MEBIBYTE
    with httpx.Client(base_url=server.url, timeout=60) as client:
        make(client, path, BINARY, b"x" * size)
        flush_all(client)
        before = server.rss_bytes
        with Raw(server) as raw:
            for _ in range(40):
                raw.ask("GET", f"{path}?max_bytes={size}")
            wait_until_clients_are_full(client)
            assert server.rss_bytes - before < 10 * size
            for _ in range(40):
                assert len(raw.answer().body) == size
    assert server.complaints() == []


@pytest.mark.one_node("measures the memory of one process")
def test_a_batch_leaves_nothing_behind(start_server: StartServer) -> None:
    server = start_server()
    frame = b"\x00\x00\x20\x00" + b"x" * 0x2000
    with httpx.Client(base_url=server.url, timeout=60) as client:
        client.put("/leaks")
        make(client, "/leaks/s", {**BINARY, "stream-ttl": "3600"})
        cut = (
            f"POST /leaks/s/append-batch HTTP/1.1\r\nHost: t\r\nContent-Length: {len(frame)}\r\n\r\n".encode()
        )

        def cut_off() -> None:
            for _ in range(500):
                with Raw(server) as raw:
                    raw.send(cut + frame[:-1])
            time.sleep(1.5)  # two young collections: what is left then stays for good

        cut_off()
        before = server.rss_bytes
        for _ in range(3):
            cut_off()
        assert server.rss_bytes - before < 6 * MEBIBYTE, "each would leave 8 KiB and more"


def test_a_reader_that_is_gone_before_its_events_begin_is_not_read_for(start_server: StartServer) -> None:
    server = start_server(cold__flush_size="1MiB", cold__cache_bytes="0")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        client.put("/gone")
        make(client, "/gone/s", BINARY)
        for _ in range(20):
            post(client, "/gone/s", b"x" * MEBIBYTE)
        client.post("/cluster/flush").raise_for_status()
        before = scrape(client).value("ursula_live_sse_bytes_total")
        with until_gone(client):
            for live in ("sse", "long-poll") * 5:
                Raw(server).ask("GET", f"/gone/s?offset=-1&live={live}").hang_up()
        assert scrape(client).value("ursula_live_sse_bytes_total") - before < 10 * MEBIBYTE
        assert wait_for(lambda: scrape(client).value("ursula_live_connections", kind="sse") == 0, 10)


def test_a_stop_does_not_wait_for_clients_that_have_their_answers(
    start_server: StartServer, path: str
) -> None:
    server = start_server()
    ask(server, "PUT", path, TYPED, body=b"x")
    with Raw(server) as idle, Raw(server) as poll:
        assert idle.ask("GET", path).answer().status == 200
        poll.ask("GET", f"{path}?offset=1&live=long-poll&timeout=60")
        with httpx.Client(base_url=server.url, timeout=60) as client:
            wait_until_waiting(client, "long_poll")
        assert server.stop() == 0
        answer = poll.answer()
        assert (answer.status, answer.headers["connection"]) == (204, "close")
        assert idle.until_closed() == b""


@pytest.mark.one_node("measures the memory of one process")
def test_header_names_of_strangers_are_not_kept(server: Server, api: httpx.Client) -> None:
    flush_all(api)
    before = server.rss_bytes
    with Raw(server) as raw:
        for number in range(500):
            name = f"X-{number}-".ljust(50_000, "x")
            assert raw.ask("GET", "/healthz", f"{name}: y").answer().status == 200
    assert server.rss_bytes - before < 10 * MEBIBYTE


def test_an_http_1_0_client_is_told_the_end_by_the_end(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"hello")
    with Raw(server) as raw:
        raw.send(f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
        answer = raw.answer()
        assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
        assert raw.until_closed() == b""
