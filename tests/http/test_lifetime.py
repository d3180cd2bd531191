"""How streams end by themselves, and by DELETE."""

import time

import httpx
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.signs import wait_until_waiting
from tests.http.wire import BINARY, CLOSED, TEXT, content, make, post, refused
from tests.server import Server
from tests.waiting import wait_for


def read(api: httpx.Client, path: str) -> None:
    assert api.get(path).status_code == 200


def read_now(api: httpx.Client, path: str) -> None:
    assert api.get(f"{path}?offset=now").status_code == 200


def read_unchanged(api: httpx.Client, path: str) -> None:
    assert api.get(path, headers={"if-none-match": "*"}).status_code == 304


def long_poll(api: httpx.Client, path: str) -> None:
    assert api.get(f"{path}?offset=now&live=long-poll&timeout=0").status_code == 204


def sse(api: httpx.Client, path: str) -> None:
    with api.stream("GET", f"{path}?offset=-1&live=sse") as answer:
        next(answer.iter_lines())


def append(api: httpx.Client, path: str) -> None:
    post(api, path, b"x")


def close(api: httpx.Client, path: str) -> None:
    post(api, path, b"", CLOSED)


def head(api: httpx.Client, path: str) -> None:
    assert api.head(path).status_code == 200


RENEWING = [read, read_now, read_unchanged, long_poll, sse, append, close]


def test_a_window_slides_with_reads_and_writes_and_not_with_head(
    timed_server: Server, timed_api: httpx.Client, path: str
) -> None:
    """All kinds at once, each on a stream of its own: touched at half of the window, looked at after it."""
    api = timed_api
    touches = [*RENEWING, head]
    for touch in touches:
        make(api, f"{path}-{touch.__name__}", {**BINARY, "stream-ttl": "1000"}, b"data")
    timed_server.pass_time(600)
    for touch in touches:
        touch(api, f"{path}-{touch.__name__}")
    timed_server.pass_time(600)
    status = {touch: api.head(f"{path}-{touch.__name__}").status_code for touch in touches}
    assert status == {**dict.fromkeys(RENEWING, 200), head: 404}
    timed_server.pass_time(600)
    for touch in touches:
        name = f"{path}-{touch.__name__}"
        assert wait_for(lambda name=name: api.head(name).status_code == 404)  # type: ignore[misc]
        refused(api.get(name), 404, "stream_not_found")


def test_a_ttl_of_0_and_a_past_expiry_are_accepted_and_gone_at_once(api: httpx.Client, path: str) -> None:
    for lifetime in ({"stream-ttl": "0"}, {"stream-expires-at": "2001-01-01T00:00:00Z"}):
        for _ in range(2):
            make(api, path, {**TEXT, **lifetime}, b"x")
            assert api.head(path).status_code == 404
        refused(api.post(path, headers=TEXT, content=b"x"), 404, "stream_not_found")
        refused(api.get(path), 404, "stream_not_found")
        refused(api.delete(path), 404, "stream_not_found")
    make(api, path, TEXT)


def test_an_expiry_never_moves(timed_server: Server, timed_api: httpx.Client, path: str) -> None:
    moment = timed_server.now() + 1000
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z"
    make(timed_api, path, {**BINARY, "stream-expires-at": text})
    for _ in range(3):
        timed_server.pass_time(300)
        post(timed_api, path, b"x")
        read(timed_api, path)
    timed_server.pass_time(100)
    refused(timed_api.get(path), 404, "stream_not_found")


def test_an_expired_stream_can_be_made_again_with_another_configuration(
    timed_server: Server, timed_api: httpx.Client, path: str
) -> None:
    first = make(timed_api, path, {**TEXT, "stream-ttl": "100"}, b"old")
    timed_server.pass_time(101)
    second = make(timed_api, path, BINARY, b"new")
    assert first.headers["stream-incarnation"] != second.headers["stream-incarnation"]
    assert content(timed_api, path) == b"new"


def test_a_window_survives_a_restart(start_server: StartServer, path: str) -> None:
    own = start_server(movable_clock=True)
    with httpx.Client(base_url=own.url, timeout=60) as api:
        make(api, path, {**TEXT, "stream-ttl": "3600"}, b"x")
        make(api, path + "-short", {**TEXT, "stream-ttl": "1000"}, b"x")
    own.pass_time(500)
    own.restart()
    with httpx.Client(base_url=own.url, timeout=60) as api:
        assert api.head(path + "-short").status_code == 200
        own.pass_time(501)
        assert api.head(path).headers["stream-ttl"] == "3600"
        assert api.head(path + "-short").status_code == 404


def test_a_stream_that_expires_while_it_is_followed_ends_its_followers(
    timed_server: Server, timed_api: httpx.Client, path: str
) -> None:
    make(timed_api, path, {**TEXT, "stream-ttl": "1000"}, b"x")
    with Raw(timed_server) as poll, Raw(timed_server) as events:
        poll.ask("GET", f"{path}?offset=1&live=long-poll&timeout=60")
        events.ask("GET", f"{path}?offset=1&live=sse")
        assert events.begin()[0] == 200
        wait_until_waiting(timed_api, "long_poll")
        timed_server.pass_time(1001)
        assert poll.answer().code == "stream_not_found"
        assert events.rest().count(b"event: control") == 1


def test_delete_is_answered_once_and_the_name_is_free(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"old")
    answer = api.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    refused(api.delete(path), 404, "stream_not_found")
    refused(api.get(path), 404, "stream_not_found")
    refused(api.post(path, headers=TEXT, content=b"x"), 404, "stream_not_found")
    assert api.head(path).status_code == 404
    make(api, path, BINARY, b"new")
    assert content(api, path) == b"new"
