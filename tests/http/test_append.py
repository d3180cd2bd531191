"""POST: append, close, or both; plain, by a producer, or in the writer's own sequence."""

import contextlib

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import CutOff, Raw, ask
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, producer, refused
from tests.server import Server

OF_ITS_OWN = ("date", "stream-incarnation", "etag")
"""Headers that differ from stream to stream."""


def test_an_append_says_where_the_stream_ends_now(api: httpx.Client, path: str) -> None:
    made = make(api, path)
    answer = post(api, path, b"hello")
    incarnation = made.headers["stream-incarnation"]
    assert answer.headers["stream-next-offset"] == offset(5)
    assert answer.headers["stream-incarnation"] == incarnation
    assert answer.headers["etag"] == f'"{incarnation}:5:5"'
    assert "stream-closed" not in answer.headers
    assert "producer-epoch" not in answer.headers


def test_an_append_needs_a_body_and_a_content_type(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path)
    empty = ask(server, "POST", path, "Content-Type: application/octet-stream", body=b"")
    assert (empty.status, empty.code) == (400, "empty_body")
    bare = ask(server, "POST", path)
    assert (bare.status, bare.code) == (400, "empty_body")
    untyped = ask(server, "POST", path, body=b"x")
    assert (untyped.status, untyped.code) == (400, "content_type_missing")
    blank = ask(server, "POST", path, "Content-Type:", body=b"x")
    assert (blank.status, blank.code) == (400, "content_type_missing")
    assert content(api, path) == b""


def test_the_content_type_is_compared_without_case_and_parameters(api: httpx.Client, path: str) -> None:
    make(api, path, {"content-type": "text/plain; charset=utf-8"})
    post(api, path, b"x", {"content-type": "TEXT/PLAIN"})
    answer = api.post(path, headers=JSON, content=b"1")
    refused(answer, 409, "content_type_mismatch")
    assert content(api, path) == b"x"


def test_a_body_may_come_in_chunks(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path)
    answer = api.post(path, headers=BINARY, content=iter([b"one", b"two", b"three" * 50_000]))
    assert answer.status_code == 204
    assert content(api, path) == b"onetwo" + b"three" * 50_000


def test_nothing_of_a_small_body_that_is_cut_off_is_stored(
    server: Server, api: httpx.Client, path: str
) -> None:
    make(api, path, TEXT)
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: 30\r\n\r\n"
    for _ in range(20):
        with Raw(server) as raw:
            raw.send(head.encode() + b"x" * 15)
    with Raw(server) as raw:
        raw.send(head.encode() + b"x" * 15).finish_sending()
        with contextlib.suppress(CutOff, ConnectionError):
            assert raw.answer().code == "body_incomplete"
    post(api, path, b"whole", TEXT)
    assert content(api, path) == b"whole"


def test_closing_is_idempotent_and_whatever_its_content_type(api: httpx.Client, path: str) -> None:
    make(api, path, body=b"data")
    for headers in ({"stream-closed": "True"}, {**CLOSED, **JSON}, CLOSED):
        answer = post(api, path, b"", headers)
        assert answer.headers["stream-closed"] == "true"
        assert answer.headers["stream-next-offset"] == offset(4)
        assert answer.headers["etag"].endswith(':4:4:c"')
    assert api.head(path).headers["stream-closed"] == "true"


def test_the_last_append_can_close(api: httpx.Client, path: str) -> None:
    make(api, path)
    answer = post(api, path, b"last", {**BINARY, **CLOSED})
    assert answer.headers["stream-closed"] == "true"
    late = api.post(path, headers=BINARY, content=b"late")
    refused(late, 409, "stream_closed")
    assert late.headers["stream-closed"] == "true"
    assert late.headers["stream-next-offset"] == offset(4)
    refused(api.post(path, headers={**BINARY, **CLOSED}, content=b"late"), 409, "stream_closed")
    assert content(api, path) == b"last"


def test_a_producers_append_is_200_and_its_retry_204(api: httpx.Client, path: str) -> None:
    make(api, path)
    first = post(api, path, b"one", {**BINARY, **producer(0, 7)}, status=200)
    assert (first.headers["producer-epoch"], first.headers["producer-seq"]) == ("7", "0")
    assert first.headers["stream-next-offset"] == offset(3)
    post(api, path, b"between")
    again = post(api, path, b"one", {**BINARY, **producer(0, 7)}, status=204)
    assert (again.headers["producer-epoch"], again.headers["producer-seq"]) == ("7", "0")
    assert again.headers["stream-next-offset"] == offset(3), "the offset of the first time"
    assert content(api, path) == b"onebetween"


def test_an_older_retry_tells_the_highest_seq_and_the_tail(api: httpx.Client, path: str) -> None:
    make(api, path)
    for seq in range(3):
        post(api, path, b"x", {**BINARY, **producer(seq)}, status=200)
    again = post(api, path, b"x", {**BINARY, **producer(0)}, status=204)
    assert again.headers["producer-seq"] == "2"
    assert again.headers["stream-next-offset"] == offset(3)
    assert content(api, path) == b"xxx"


@pytest.mark.parametrize(("known", "seq", "expected"), [(0, 2, 1), (0, 99, 1), (None, 1, 0)])
def test_a_gap_says_what_was_expected(
    api: httpx.Client, path: str, known: int | None, seq: int, expected: int
) -> None:
    make(api, path)
    if known is not None:
        post(api, path, b"x", {**BINARY, **producer(known)}, status=200)
    answer = api.post(path, headers={**BINARY, **producer(seq)}, content=b"y")
    assert refused(answer, 409, "producer_seq_conflict") == {"expected_seq": expected, "received_seq": seq}
    assert answer.headers["producer-expected-seq"] == str(expected)
    assert answer.headers["producer-received-seq"] == str(seq)


def test_a_stale_epoch_is_fenced(api: httpx.Client, path: str) -> None:
    make(api, path)
    post(api, path, b"new", {**BINARY, **producer(0, 5)}, status=200)
    answer = api.post(path, headers={**BINARY, **producer(1, 4)}, content=b"old")
    refused(answer, 403, "producer_epoch_stale")
    assert answer.headers["producer-epoch"] == "5"
    post(api, path, b"", CLOSED)
    closed = api.post(path, headers={**BINARY, **producer(1, 4)}, content=b"old")
    refused(closed, 409, "stream_closed")
    assert closed.headers["stream-closed"] == "true"


def test_a_new_epoch_begins_with_seq_0(api: httpx.Client, path: str) -> None:
    make(api, path)
    post(api, path, b"x", {**BINARY, **producer(0, 1)}, status=200)
    refused(
        api.post(path, headers={**BINARY, **producer(1, 2)}, content=b"y"), 400, "producer_headers_invalid"
    )
    post(api, path, b"y", {**BINARY, **producer(0, 2)}, status=200)


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "a"},
        {"producer-epoch": "0", "producer-seq": "0"},
        {"producer-id": "a", "producer-seq": "0"},
        {"producer-id": "", "producer-epoch": "0", "producer-seq": "0"},
        producer(0, name="x" * 257),
        *({**producer(0), "producer-seq": text} for text in ("-1", "+1", "1.0", "1_0", "", "x", str(2**53))),
        *({**producer(0), "producer-epoch": text} for text in ("-1", "01", "0x1", str(2**53))),
    ],
)
def test_producer_headers_are_checked_even_without_a_stream(
    api: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    refused(api.post(path, headers={**BINARY, **headers}, content=b"x"), 400, "producer_headers_invalid")


def test_the_largest_producer_numbers_and_names_are_taken(api: httpx.Client, path: str) -> None:
    make(api, path)
    answer = post(api, path, b"x", {**BINARY, **producer(0, 2**53 - 1, "x" * 256)}, status=200)
    assert answer.headers["producer-epoch"] == str(2**53 - 1)


def test_the_request_that_closed_may_be_retried(api: httpx.Client, path: str) -> None:
    make(api, path)
    post(api, path, b"x", {**BINARY, **producer(0)}, status=200)
    post(api, path, b"last", {**BINARY, **CLOSED, **producer(1)}, status=200)
    again = post(api, path, b"last", {**BINARY, **CLOSED, **producer(1)}, status=204)
    assert again.headers["stream-closed"] == "true"
    assert again.headers["stream-next-offset"] == offset(5)
    assert again.headers["producer-seq"] == "1"
    other = api.post(path, headers={**BINARY, **CLOSED, **producer(2)}, content=b"")
    refused(other, 409, "stream_closed")
    assert content(api, path) == b"xlast"


def test_closing_with_a_producer_uses_up_a_seq(api: httpx.Client, path: str) -> None:
    make(api, path)
    gap = api.post(path, headers={**CLOSED, **producer(1)})
    refused(gap, 409, "producer_seq_conflict")
    assert "stream-closed" not in api.head(path).headers
    for _ in range(2):
        answer = post(api, path, b"", {**CLOSED, **producer(0)}, status=204)
        assert answer.headers["stream-closed"] == "true"
        assert answer.headers["producer-seq"] == "0"


def test_a_producer_retry_is_a_retry_whatever_else_it_says(api: httpx.Client, path: str) -> None:
    make(api, path)
    first = {**BINARY, **producer(0), "stream-seq": "a", "if-match": api.head(path).headers["etag"]}
    post(api, path, b"x", first, status=200)
    assert post(api, path, b"x", first, status=204).headers["stream-next-offset"] == offset(1)
    assert content(api, path) == b"x"


def test_stream_seq_is_compared_as_bytes(api: httpx.Client, path: str) -> None:
    make(api, path)
    for seq in ("", "10", "2", "a"):
        post(api, path, b"x", {**BINARY, "stream-seq": seq})
    for seq in ("a", "B", "10"):
        answer = api.post(path, headers={**BINARY, "stream-seq": seq}, content=b"y")
        refused(answer, 409, "stream_seq_conflict")
        assert "sequence" in answer.text
        assert answer.headers["stream-next-offset"] == offset(4)
    assert content(api, path) == b"xxxx"
    refused(api.post(path, headers={**BINARY, "stream-seq": "b" * 257}, content=b"y"), 400, "header_invalid")
    post(api, path, b"x", {**BINARY, "stream-seq": "b" * 256})


def test_producers_and_stream_seq_survive_a_restart_and_closure_too(
    start_server: StartServer, path: str
) -> None:
    own = start_server()
    with httpx.Client(base_url=own.url, timeout=60) as api:
        make(api, path, TEXT, b"a")
        post(api, path, b"b", {**TEXT, **producer(0), "stream-seq": "5"}, status=200)
        make(api, path + "-closed")
        post(api, path + "-closed", b"", CLOSED)
        tags = [api.head(path).headers["etag"], api.head(path + "-closed").headers["etag"]]
    own.restart()
    with httpx.Client(base_url=own.url, timeout=60) as api:
        assert [api.head(path).headers["etag"], api.head(path + "-closed").headers["etag"]] == tags
        assert api.head(path + "-closed").headers["stream-closed"] == "true"
        post(api, path, b"b", {**TEXT, **producer(0)}, status=204)
        refused(api.post(path, headers={**TEXT, "stream-seq": "5"}, content=b"c"), 409, "stream_seq_conflict")
        assert content(api, path) == b"ab"


SITUATIONS: dict[str, tuple[dict[str, str] | None, dict[str, str], bytes]] = {
    "as usual": (BINARY, BINARY, b"more"),
    "with parameters": (TEXT, {"content-type": "text/plain; charset=utf-8"}, b"more"),
    "JSON": (JSON, JSON, b"[1, 2]"),
    "no JSON": (JSON, JSON, b"[1, 2"),
    "nothing in it": (JSON, JSON, b"[]"),
    "of another type": (BINARY, TEXT, b"more"),
    "without a type": (BINARY, {"content-type": ""}, b"more"),
    "no stream": (None, BINARY, b"more"),
    "closed": ({**BINARY, **CLOSED}, BINARY, b"more"),
    "with a window": ({**BINARY, "stream-ttl": "3600"}, BINARY, b"more"),
    "with an end": ({**BINARY, "stream-expires-at": "2100-01-01T00:00:00Z"}, BINARY, b"more"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_short_way_and_the_long_way_of_an_append_lead_to_the_same(
    api: httpx.Client, path: str, situation: str
) -> None:
    """A header of ours, even one that says nothing, makes the server look closer."""
    made, headers, body = SITUATIONS[situation]
    told = []
    for way, looked_at in (("short", {}), ("long.", {"stream-closed": "no"})):
        name = f"{path}-{way}"
        if made is not None:
            make(api, name, made)
        answers = [api.post(name, headers=headers | looked_at, content=body) for _ in range(2)]
        answers.append(api.get(name, params={"offset": "-1"}))
        for answer in answers:
            fixed = {key: value for key, value in answer.headers.items() if key not in OF_ITS_OWN}
            told.append((answer.status_code, fixed, answer.content.replace(way.encode(), b"")))
    assert told[:3] == told[3:]
