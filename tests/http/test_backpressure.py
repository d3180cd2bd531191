"""Too many bytes at once: writes are turned away and come back, reads do not notice."""

import time
from collections.abc import Iterator

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.wire import TEXT, content, make, post, refused
from tests.scrape import scrape
from tests.server import Server

pytestmark = pytest.mark.one_node("what it limits is what one process holds")

LIMIT = 100_000
HALF = 60_000


@pytest.fixture(scope="module")
def small(start_server: StartServer) -> Server:
    """A server with little room for bodies."""
    return start_server(limits__inflight_bytes=str(LIMIT), limits__append_bytes=str(LIMIT))


@pytest.fixture(scope="module")
def api(small: Server) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=small.url, timeout=60) as client:
        yield client


def until_held(api: httpx.Client, count: int) -> None:
    """Wait until so many bytes are taken from the allowance."""
    give_up_at = time.monotonic() + 60
    while scrape(api).value("ursula_write_backpressure_bytes", limit="inflight_bytes") != count:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def begin(server: Server, path: str, length: int) -> Raw:
    """Announce a body and send all of it but the last byte."""
    raw = Raw(server).ask("POST", path, "Content-Type: text/plain", f"Content-Length: {length}")
    return raw.send(b"x" * (length - 1))


def backpressure(api: httpx.Client) -> dict[str, object]:
    """What the statistics say of it."""
    found: dict[str, object] = api.get("/cluster/hot-cold-stats").json()["backpressure"]
    return found


def test_a_half_sent_body_holds_its_room_until_it_is_whole(
    small: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT, b"0")
    before = scrape(api).value("ursula_write_backpressure_rejections_total", limit="inflight_bytes")
    with begin(small, path, HALF) as slow:
        until_held(api, HALF - 1)
        assert backpressure(api) == {"active": False, "reason": None}
        answer = api.post(path, headers=TEXT, content=b"y" * HALF)
        refused(answer, 503, "write_backpressure")
        assert answer.headers["retry-after"] == "1"
        seen = scrape(api)
        assert seen.value("ursula_write_backpressure_active", limit="inflight_bytes") == 1
        assert seen.value("ursula_write_backpressure_bytes", limit="inflight_bytes") == HALF - 1
        assert seen.value("ursula_write_backpressure_limit_bytes", limit="inflight_bytes") == LIMIT
        assert seen.value("ursula_write_backpressure_rejections_total", limit="inflight_bytes") == before + 1
        found = backpressure(api)
        assert found["active"] is True
        assert "limits.inflight_bytes" in str(found["reason"])
        assert content(api, path) == b"0"  # reads go on
        assert api.get("/readyz/local").status_code == 200
        post(api, path, b"1", TEXT)  # and so does what still fits
        assert slow.send(b"x").answer().status == 204
    seen = scrape(api)
    assert seen.value("ursula_write_backpressure_active", limit="inflight_bytes") == 0
    assert seen.value("ursula_write_backpressure_bytes", limit="inflight_bytes") == 0
    assert backpressure(api) == {"active": False, "reason": None}
    post(api, path, b"y" * HALF, TEXT)
    assert content(api, path) == b"01" + b"x" * HALF + b"y" * HALF


def test_a_chunked_body_is_turned_away_when_there_is_no_room(
    small: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    with begin(small, path, HALF) as slow:
        until_held(api, HALF - 1)
        with Raw(small) as raw:
            raw.ask("POST", path, "Content-Type: text/plain", "Transfer-Encoding: chunked")
            answer = raw.send(b"%x\r\n%s\r\n" % (HALF, b"y" * HALF)).answer()
            assert (answer.status, answer.code) == (503, "write_backpressure")
        assert backpressure(api)["active"] is True
        assert slow.send(b"x").answer().status == 204
    assert backpressure(api)["active"] is False
    assert content(api, path) == b"x" * HALF


def test_a_client_that_goes_away_gives_its_room_back(small: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    with begin(small, path, HALF):
        until_held(api, HALF - 1)
        refused(api.post(path, headers=TEXT, content=b"y" * HALF), 503, "write_backpressure")
    until_held(api, 0)
    assert backpressure(api) == {"active": False, "reason": None}
    post(api, path, b"y" * HALF, TEXT)
    assert content(api, path) == b"y" * HALF


def test_creating_with_a_body_is_turned_away_too(small: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    with begin(small, path, HALF):
        until_held(api, HALF - 1)
        refused(api.put(f"{path}-new", headers=TEXT, content=b"y" * HALF), 503, "write_backpressure")
        assert api.head(f"{path}-new").status_code == 404
        make(api, f"{path}-empty", TEXT)
    until_held(api, 0)


def test_a_body_that_never_fits_is_no_pressure(start_server: StartServer, path: str) -> None:
    server = start_server(limits__inflight_bytes="1000", limits__append_bytes="2000")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        refused(api.post(path, headers=TEXT, content=b"x" * 1500), 503, "write_backpressure")
        seen = scrape(api)
        assert seen.value("ursula_write_backpressure_rejections_total", limit="inflight_bytes") == 1
        assert seen.value("ursula_write_backpressure_active", limit="inflight_bytes") == 0


def test_who_is_turned_away_may_ask_again_at_once(small: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    with begin(small, path, HALF):
        until_held(api, HALF - 1)
        for _ in range(50):  # on the same connection, or on another if it is told that this one ends
            answer = api.post(path, headers=TEXT, content=b"y" * HALF)
            refused(answer, 503, "write_backpressure")
    until_held(api, 0)
