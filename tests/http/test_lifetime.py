"""How streams end by themselves, and by DELETE."""

import time

import httpx
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.wire import BINARY, CLOSED, TEXT, content, make, post, refused
from tests.server import Server


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


def test_a_window_slides_with_reads_and_writes_and_not_with_head(api: httpx.Client, path: str) -> None:
    """All kinds at once, each on a stream of its own: touched at half of the window, looked at after it.

    A machine that stands still for so long that a window is over before its turn gets a longer one.
    """
    assert any(slides(api, f"{path}-{window}", window) for window in (2, 4, 8, 16, 32))


def slides(api: httpx.Client, path: str, window: int) -> bool:
    """Whether there was time to see how windows slide."""
    touches = [*RENEWING, head]
    began = time.monotonic()
    for touch in touches:
        make(api, f"{path}-{touch.__name__}", {**BINARY, "stream-ttl": str(window)}, b"data")
    made = time.monotonic()
    time.sleep(max(0.0, began + window * 0.6 - time.monotonic()))
    try:
        for touch in touches:
            touch(api, f"{path}-{touch.__name__}")
    except AssertionError:
        if time.monotonic() - began > window * 0.95:
            return False
        raise
    touched = time.monotonic()
    time.sleep(max(0.0, made + window * 1.1 - time.monotonic()))
    status = {touch: api.head(f"{path}-{touch.__name__}").status_code for touch in touches}
    if touched - began > window * 0.95 or time.monotonic() - began > window * 1.55:
        return False
    assert status == {**dict.fromkeys(RENEWING, 200), head: 404}
    time.sleep(max(0.0, touched + window * 1.1 - time.monotonic()))
    for touch in touches:
        answer = api.get(f"{path}-{touch.__name__}")
        refused(answer, 404, "stream_not_found")
    return True


def test_a_ttl_of_0_and_a_past_expiry_are_accepted_and_gone_at_once(api: httpx.Client, path: str) -> None:
    for lifetime in ({"stream-ttl": "0"}, {"stream-expires-at": "2001-01-01T00:00:00Z"}):
        for _ in range(2):
            make(api, path, {**TEXT, **lifetime}, b"x")
            assert api.head(path).status_code == 404
        refused(api.post(path, headers=TEXT, content=b"x"), 404, "stream_not_found")
        refused(api.get(path), 404, "stream_not_found")
        refused(api.delete(path), 404, "stream_not_found")
    make(api, path, TEXT)


def test_an_expiry_never_moves(api: httpx.Client, path: str) -> None:
    moment = time.time() + 1.5
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03d}Z"
    make(api, path, {**BINARY, "stream-expires-at": text})
    while True:
        answers = [api.post(path, headers=BINARY, content=b"x"), api.get(path)]
        if time.time() >= moment:
            break
        assert all(answer.is_success for answer in answers)
        time.sleep(0.1)
    time.sleep(max(0.0, moment + 0.05 - time.time()))
    refused(api.get(path), 404, "stream_not_found")


def test_an_expired_stream_can_be_made_again_with_another_configuration(api: httpx.Client, path: str) -> None:
    first = make(api, path, {**TEXT, "stream-ttl": "1"}, b"old")
    time.sleep(1.1)
    second = make(api, path, BINARY, b"new")
    assert first.headers["stream-incarnation"] != second.headers["stream-incarnation"]
    assert content(api, path) == b"new"


def test_a_window_survives_a_restart(start_server: StartServer, path: str) -> None:
    own = start_server()
    with httpx.Client(base_url=own.url, timeout=60) as api:
        make(api, path, {**TEXT, "stream-ttl": "3600"}, b"x")
        make(api, path + "-short", {**TEXT, "stream-ttl": "1"}, b"x")
    time.sleep(0.5)
    own.restart()
    time.sleep(0.6)
    with httpx.Client(base_url=own.url, timeout=60) as api:
        assert api.head(path).headers["stream-ttl"] == "3600"
        assert api.head(path + "-short").status_code == 404


def test_a_stream_that_expires_while_it_is_followed_ends_its_followers(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, {**TEXT, "stream-ttl": "3"}, b"x")
    with Raw(server) as poll, Raw(server) as events:
        poll.ask("GET", f"{path}?offset=1&live=long-poll&timeout=20")
        events.ask("GET", f"{path}?offset=1&live=sse")
        assert events.begin()[0] == 200
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
