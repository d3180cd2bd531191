"""A stream that was deleted or has expired comes back as it was, and nothing else does."""

import json

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.wire import CLOSED, JSON, TEXT, content, make, offset, post, producer, refused
from tests.server import Server
from tests.waiting import wait_for


def undelete(api: httpx.Client, path: str, **more: str) -> httpx.Response:
    """Ask for a stream on the flat route to be brought back."""
    bucket, stream = split(path)
    return api.post("/cluster/undelete", json={"bucket": bucket, "stream": stream, **more})


def split(path: str) -> tuple[str, str]:
    """The bucket and the stream that a flat path names."""
    bucket, slash, stream = path.removeprefix("/v1/stream/").partition("/")
    return (bucket, stream) if slash else ("_default", bucket)


@pytest.fixture
def path(path: str) -> str:
    """A stream in a bucket of its own."""
    return f"{path}/stream"


def delete(api: httpx.Client, path: str) -> str:
    """End a stream; its incarnation."""
    answer = api.delete(path)
    assert answer.status_code == 204
    return answer.headers["stream-incarnation"]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_deleted_stream_comes_back_as_it_was(api: httpx.Client, path: str, flushed: bool) -> None:
    headers = JSON | {"stream-attrs": '{"title":"kept"}'}
    made = make(api, path, headers, b'["a","b"]')
    assert post(api, path, b'["c"]', JSON | producer(0), status=200)
    bucket, stream = split(path)
    attributes = api.get(f"/{bucket}/{stream}/attrs").json()
    before = api.head(path)
    if flushed:
        api.post("/cluster/flush").raise_for_status()
    delete(api, path)
    if flushed:
        api.post("/cluster/flush").raise_for_status()
    assert api.get(path).status_code == 404
    answer = undelete(api, path)
    assert answer.status_code == 200
    tail = int(before.headers["stream-next-offset"])
    assert answer.json() == {
        "bucket_id": bucket,
        "stream_id": stream,
        "incarnation": made.headers["stream-incarnation"],
        "tail_offset": tail,
        "closed": False,
    }
    assert answer.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    assert answer.headers["stream-next-offset"] == offset(tail)
    assert answer.headers["etag"] == before.headers["etag"]
    assert "stream-closed" not in answer.headers
    after = api.head(path)
    for name in ("stream-next-offset", "etag", "stream-incarnation", "stream-record-next"):
        assert after.headers[name] == before.headers[name]
    assert api.get(path).json() == ["a", "b", "c"]
    assert api.get(f"/{bucket}/{stream}/attrs").json() == attributes
    assert post(api, path, b'["c"]', JSON | producer(0), status=204)  # the producer is known: a repeat
    post(api, path, b'["d"]', JSON | producer(1), status=200)
    assert api.get(path).json() == ["a", "b", "c", "d"]


def test_a_closed_stream_comes_back_closed(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT | CLOSED, b"all of it")
    delete(api, path)
    answer = undelete(api, path)
    assert answer.status_code == 200
    assert answer.json()["closed"] is True
    assert answer.headers["stream-closed"] == "true"
    refused(api.post(path, headers=TEXT, content=b"more"), 409, "stream_closed")
    assert content(api, path) == b"all of it"


def test_a_stream_that_expired_comes_back_for_another_while(
    timed_server: Server, timed_api: httpx.Client, path: str
) -> None:
    make(timed_api, path, TEXT | {"stream-ttl": "100"}, b"short-lived")
    timed_server.pass_time(101)
    assert timed_api.head(path).status_code == 404
    assert undelete(timed_api, path).status_code == 200
    assert content(timed_api, path) == b"short-lived"
    timed_server.pass_time(101)
    assert wait_for(lambda: timed_api.head(path).status_code == 404)


def test_the_feed_tells_of_it(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"x")
    delete(api, path)
    undelete(api, path)
    bucket, _ = split(path)
    rows = [json.loads(line) for line in api.get(f"/{bucket}?offset=-1").text.splitlines()]
    assert [row["kind"] for row in rows] == ["create", "append", "delete", "undelete"]


def test_the_last_of_several_comes_back_or_the_one_that_is_named(api: httpx.Client, path: str) -> None:
    incarnations = []
    for text in (b"first", b"second", b"third"):
        make(api, path, TEXT, text)
        incarnations.append(delete(api, path))
    assert undelete(api, path).status_code == 200
    assert content(api, path) == b"third"
    delete(api, path)
    answer = undelete(api, path, incarnation=incarnations[0])
    assert answer.status_code == 200
    assert answer.headers["stream-incarnation"] == incarnations[0]
    assert content(api, path) == b"first"


def test_the_feed_names_what_can_come_back(api: httpx.Client, path: str) -> None:
    for text in (b"first", b"second"):
        make(api, path, TEXT, text)
        delete(api, path)
    bucket, _ = split(path)
    rows = [json.loads(line) for line in api.get(f"/{bucket}?offset=-1").text.splitlines()]
    first, second = [row["incarnation"] for row in rows if row["kind"] == "delete"]
    assert undelete(api, path, incarnation=first).status_code == 200
    assert content(api, path) == b"first"
    refused(undelete(api, path, incarnation=second), 409, "stream_exists")


def test_a_name_that_is_taken_stays_so(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"old")
    old = delete(api, path)
    new = make(api, path, TEXT, b"new").headers["stream-incarnation"]
    for more in ({}, {"incarnation": old}):
        answer = undelete(api, path, **more)
        refused(answer, 409, "stream_exists")
        assert answer.headers["stream-incarnation"] == new
    assert content(api, path) == b"new"


def test_a_stream_that_is_there_needs_no_return(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    refused(undelete(api, path), 409, "stream_exists")


def test_what_never_was_does_not_come_back(api: httpx.Client, path: str) -> None:
    refused(undelete(api, path), 404, "stream_not_found")
    make(api, path, TEXT)
    made = delete(api, path)
    generation, _, rest = made.partition("-")
    for wrong in ("1-2-3", f"{int(generation) + 1}-{rest}", f"{made}0"):
        refused(undelete(api, path, incarnation=wrong), 404, "stream_not_found")


def test_what_is_no_incarnation_is_told_apart_from_one_that_is_not_kept(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT)
    made = delete(api, path)
    wrongs = (
        "nonsense",
        "",
        "1-2",
        f" {made}",
        f"{made}-0",
        made.replace("-", "_"),
        "1-0-\u0661-0",
        "9" * 5000,
    )
    for wrong in wrongs:
        refused(undelete(api, path, incarnation=wrong), 400, "invalid_parameter")
    assert undelete(api, path, incarnation=made).status_code == 200


def test_its_bucket_comes_back_with_it(api: httpx.Client, path: str) -> None:
    bucket, _ = split(path)
    make(api, path, TEXT, b"x")
    delete(api, path)
    assert api.delete(f"/{bucket}").status_code == 204
    assert undelete(api, path).status_code == 200
    assert api.get(f"/{bucket}").json() == {"bucket_id": bucket, "streams": 1}
    assert content(api, path) == b"x"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"{}", "invalid_json"),
        (b'{"bucket": "demo"}', "invalid_json"),
        (b'{"stream": "s"}', "invalid_json"),
        (b'{"bucket": 1, "stream": "s"}', "invalid_json"),
        (b'{"bucket": "demo", "stream": null}', "invalid_json"),
        (b'{"bucket": "demo", "stream": "s", "incarnation": 7}', "invalid_json"),
        (b'{"bucket": "demo", "stream": "s", "incarnaton": "1-0-1-0"}', "invalid_json"),
        (b'{"bucket": "", "stream": "s"}', "invalid_bucket_id"),
        (b'{"bucket": "demo", "stream": ""}', "invalid_stream_id"),
        (b'{"bucket": "demo", "stream": "\\ud800"}', "invalid_json"),
    ],
)
def test_a_request_that_cannot_be_understood(api: httpx.Client, body: bytes, code: str) -> None:
    refused(api.post("/cluster/undelete", content=body), 400, code)


def test_a_request_has_a_size(api: httpx.Client) -> None:
    refused(api.post("/cluster/undelete", content=b" " * 100_000), 413, "body_too_large")


def test_it_is_still_back_after_a_crash(start_server: StartServer, path: str) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, path, TEXT, b"one")
        api.post("/cluster/flush").raise_for_status()
        gone = delete(api, path)
        make(api, path, TEXT, b"two")
        delete(api, path)
        api.post("/cluster/flush").raise_for_status()
    server.kill()
    with httpx.Client(base_url=server.start().url, timeout=60) as api:
        assert undelete(api, path, incarnation=gone).status_code == 200
        assert content(api, path) == b"one"
    server.kill()
    with httpx.Client(base_url=server.start().url, timeout=60) as api:
        assert content(api, path) == b"one"
        assert api.head(path).headers["stream-incarnation"] == gone
