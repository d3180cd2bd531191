"""Long-poll, and the cursors of live reads."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.signs import begin_long_poll, wait_until_waiting
from tests.http.wire import CLOSED, JSON, TEXT, make, offset, post, refused
from tests.server import Server

CURSOR_EPOCH = 1_728_432_000
"""2024-10-09T00:00:00Z"""


def interval() -> int:
    """The number of the 20 s interval now."""
    return int(time.time() - CURSOR_EPOCH) // 20


def test_a_long_poll_with_data_is_answered_at_once(api: httpx.Client, path: str) -> None:
    made = make(api, path, TEXT, b"hello")
    answer = api.get(f"{path}?offset=2&live=long-poll")
    assert answer.status_code == 200
    assert answer.content == b"llo"
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["etag"] == f'"{made.headers["stream-incarnation"]}:2:5"'
    assert interval() - 1 <= int(answer.headers["stream-cursor"]) <= interval()


def test_a_long_poll_at_the_tail_waits_for_an_append(api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b"[1]")
    for start in (offset(1), "now"):
        with ThreadPoolExecutor() as pool:
            waiting = begin_long_poll(pool, api, f"{path}?offset={start}&live=long-poll&timeout=60")
            assert not waiting.done()
            post(api, path, b"[2,3]", JSON)
            answer = waiting.result()
        assert answer.status_code == 200
        assert answer.content == b"[2,3]"
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers["cache-control"] == "no-store"
        api.delete(path)
        make(api, path, JSON, b"[1]")


@pytest.fixture(scope="module")
def patient(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server whose long-polls take a minute, if nobody says otherwise."""
    with httpx.Client(base_url=start_server(http__long_poll="60s").url, timeout=90) as client:
        yield client


@pytest.mark.parametrize("wait", ["timeout=0", "timeout_ms=100", "timeout=0&timeout_ms=100", "timeout_ms=0"])
def test_a_long_poll_gives_up_when_the_client_wants(patient: httpx.Client, path: str, wait: str) -> None:
    made = make(patient, path, TEXT, b"hello")
    began = time.monotonic()
    answer = patient.get(f"{path}?offset=5&live=long-poll&{wait}")
    assert time.monotonic() - began < 30
    assert answer.status_code == 204
    assert answer.content == b""
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    assert int(answer.headers["stream-cursor"]) >= interval() - 1
    assert "stream-closed" not in answer.headers


def test_a_long_poll_waits_as_configured(start_server: StartServer, path: str) -> None:
    server = start_server(http__long_poll="300ms")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT)
        began = time.monotonic()
        assert api.get(f"{path}?offset=now&live=long-poll").status_code == 204
        assert 0.25 < time.monotonic() - began < 30


def test_a_closed_stream_answers_at_once_in_every_mode(api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **CLOSED}, b"all")
    began = time.monotonic()
    for start in (offset(3), "now"):
        answer = api.get(f"{path}?offset={start}&live=long-poll&timeout=60")
        assert answer.status_code == 204
        assert answer.headers["stream-closed"] == "true"
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.headers["stream-next-offset"] == offset(3)
        catch_up = api.get(f"{path}?offset={start}")
        assert (catch_up.status_code, catch_up.content) == (200, b"")
        assert catch_up.headers["stream-closed"] == "true"
    with_data = api.get(f"{path}?offset=-1&live=long-poll")
    assert with_data.content == b"all"
    assert with_data.headers["stream-closed"] == "true"
    assert time.monotonic() - began < 45


def test_closing_and_deleting_wake_a_long_poll(api: httpx.Client, path: str) -> None:
    for end in ("close", "delete"):
        name = f"{path}-{end}"
        make(api, name, TEXT, b"x")
        with ThreadPoolExecutor() as pool:
            waiting = begin_long_poll(pool, api, f"{name}?offset=1&live=long-poll&timeout=60")
            if end == "close":
                post(api, name, b"", CLOSED)
                assert waiting.result().status_code == 204
                assert waiting.result().headers["stream-closed"] == "true"
            else:
                api.delete(name)
                refused(waiting.result(), 404, "stream_not_found")


def test_a_long_poll_on_a_stream_that_is_made_again_is_not_mixed_up(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"x")
    with ThreadPoolExecutor() as pool:
        waiting = begin_long_poll(pool, api, f"{path}?offset=1&live=long-poll&timeout=60")
        api.delete(path)
        make(api, path, TEXT, b"other")
        assert waiting.result().status_code in (404, 412)


def test_an_echoed_cursor_gets_a_later_one(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"x")
    for name in ("cursor", "stream-cursor"):
        for ahead in (0, 1, 1000):
            echoed = interval() + ahead
            answer = api.get(f"{path}?offset=0&live=long-poll&{name}={echoed}")
            assert int(answer.headers["stream-cursor"]) > echoed
            assert answer.headers["stream-cursor"].isdigit()
            nothing = api.get(f"{path}?offset=now&live=long-poll&timeout=0&{name}={echoed}")
            assert int(nothing.headers["stream-cursor"]) > echoed


@pytest.mark.parametrize("echoed", ["5", "", "x", "-1", "1_0", "%D9%A3", "1" * 100])
def test_an_old_or_strange_cursor_changes_nothing(api: httpx.Client, path: str, echoed: str) -> None:
    make(api, path, TEXT, b"x")
    answer = api.get(f"{path}?offset=0&live=long-poll&cursor={echoed}")
    assert answer.content == b"x"
    assert interval() - 1 <= int(answer.headers["stream-cursor"]) <= interval()


@pytest.mark.parametrize(
    "query",
    ["timeout=x", "timeout=-1", "timeout=", "timeout=1.5", "timeout_ms=+1", "timeout_ms=1_0", "max_bytes=0"],
)
def test_live_parameters_are_numbers(api: httpx.Client, path: str, query: str) -> None:
    make(api, path, TEXT, b"x")
    refused(api.get(f"{path}?offset=now&live=long-poll&{query}"), 400, "invalid_parameter")


@pytest.mark.parametrize("live", ["", "true", "SSE", "longpoll", "websocket"])
def test_another_live_mode_is_refused(api: httpx.Client, path: str, live: str) -> None:
    make(api, path, TEXT, b"x")
    refused(api.get(f"{path}?offset=0&live={live}"), 400, "invalid_parameter")


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_live_read_needs_an_offset(api: httpx.Client, path: str, live: str) -> None:
    make(api, path, TEXT, b"x")
    refused(api.get(f"{path}?live={live}"), 400, "invalid_offset")


def test_many_long_polls_of_one_stream_all_get_the_append(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    wait_until_waiting(api, "long_poll", 0)
    waiting = [Raw(server).ask("GET", f"{path}?offset=0&live=long-poll&timeout=60") for _ in range(50)]
    wait_until_waiting(api, "long_poll", 50)
    gone = waiting.pop()
    gone.close()
    wait_until_waiting(api, "long_poll", 49)
    post(api, path, b"hello", TEXT)
    for one in waiting:
        with one:
            assert one.answer().body == b"hello"
