"""Append batch: many appends in one request, each as if it had come alone."""

import threading
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.surface import MEBIBYTE, feed, frames, make_bucket
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, producer, refused

MINIMAL = {"prefer": "return=minimal"}


@pytest.fixture
def stream(api: httpx.Client) -> str:
    """The path of a stream yet to be made."""
    return f"{make_bucket(api)}/s"


def send(
    api: httpx.Client, stream: str, body: bytes, headers: dict[str, str] = BINARY, status: int = 200
) -> httpx.Response:
    answer = api.post(f"{stream}/append-batch", headers=headers, content=body)
    assert answer.status_code == status, answer.text
    return answer


def statuses(answer: httpx.Response) -> list[int]:
    return [item["status"] for item in answer.json()]


def test_each_frame_is_an_append(api: httpx.Client, stream: str) -> None:
    make(api, stream, BINARY, b"12")
    answer = send(api, stream, frames(b"abc", b"\0\0\0\0", b"z" * 1000))
    assert answer.json() == [
        {"status": 204, "stream_next_offset": offset(5)},
        {"status": 204, "stream_next_offset": offset(9)},
        {"status": 204, "stream_next_offset": offset(1009)},
    ]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["stream-next-offset"] == offset(1009)
    head = api.head(stream).headers
    assert answer.headers["etag"] == head["etag"]
    assert answer.headers["stream-incarnation"] == head["stream-incarnation"]
    assert content(api, stream) == b"12abc\0\0\0\0" + b"z" * 1000


def test_json_frames_tell_their_ordinals(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON, b"[0,0]")
    answer = send(api, stream, frames(b"1", b"[22,333]", b' {"a": 1.0} '), JSON)
    assert answer.json() == [
        {
            "status": 204,
            "stream_next_offset": offset(3),
            "stream_record_start": 2,
            "stream_record_next": 3,
        },
        {
            "status": 204,
            "stream_next_offset": offset(8),
            "stream_record_start": 3,
            "stream_record_next": 5,
        },
        {
            "status": 204,
            "stream_next_offset": offset(18),
            "stream_record_start": 5,
            "stream_record_next": 6,
        },
    ]
    assert content(api, stream) == b'[0,0,1,22,333,{"a": 1.0}]'


def test_what_is_no_json_is_refused_alone(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON)
    answer = send(api, stream, frames(b"1", b"{", b"[]", b"[2,3]", b'"\xff"', b"4"), JSON)
    assert statuses(answer) == [204, 400, 400, 204, 400, 204]
    items = answer.json()
    assert [item["error"]["code"] for item in items if item["status"] == 400] == ["invalid_json"] * 3
    assert all(item["error"]["message"] for item in items if item["status"] == 400)
    assert [item.get("stream_next_offset") for item in items][::3] == [offset(1), offset(3)]
    assert items[5]["stream_next_offset"] == offset(4)
    assert (items[5]["stream_record_start"], items[5]["stream_record_next"]) == (3, 4)
    assert content(api, stream) == b"[1,2,3,4]"
    before = api.head(stream).headers
    answer = send(api, stream, frames(b"{", b"[]"), {**JSON, **MINIMAL})
    assert statuses(answer) == [400, 400]
    assert answer.headers["stream-incarnation"] == before["stream-incarnation"]
    assert answer.headers["stream-next-offset"] == offset(4)
    assert api.head(stream).headers["etag"] == before["etag"]


def test_on_a_closed_stream_every_frame_is_refused(api: httpx.Client, stream: str) -> None:
    made = make(api, stream, {**TEXT, **CLOSED}, b"end")
    answer = send(api, stream, frames(b"a", b"b"), TEXT)
    assert statuses(answer) == [409, 409]
    assert {item["error"]["code"] for item in answer.json()} == {"stream_closed"}
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["stream-next-offset"] == offset(3)
    assert answer.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    assert content(api, stream) == b"end"


def test_with_another_content_type_every_frame_is_refused(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON)
    answer = send(api, stream, frames(b"1", b"2"), TEXT)
    assert statuses(answer) == [409, 409]
    assert {item["error"]["code"] for item in answer.json()} == {"content_type_mismatch"}
    assert answer.headers["stream-incarnation"]
    assert content(api, stream) == b"[]"


def test_without_a_stream_there_is_one_answer(api: httpx.Client, stream: str) -> None:
    refused(send(api, stream, frames(b"1"), JSON, 404), 404, "stream_not_found")


@pytest.mark.parametrize(
    "prefer", ["return=minimal", "Return=Minimal", "respond-async, return=minimal; x=1", "return = minimal"]
)
def test_who_wants_little_gets_little(api: httpx.Client, stream: str, prefer: str) -> None:
    make(api, stream, JSON)
    answer = send(api, stream, frames(b"1", b"2"), {**JSON, "prefer": prefer}, 204)
    assert answer.content == b""
    assert answer.headers["stream-next-offset"] == offset(2)
    answer = send(api, stream, frames(b"3", b"{"), {**JSON, "prefer": prefer})
    assert statuses(answer) == [204, 400], "not all was well"
    answer = send(api, stream, frames(b"4"), {**JSON, "prefer": "return=representation"})
    assert statuses(answer) == [204]


def test_the_limits_themselves_are_allowed(api: httpx.Client, stream: str) -> None:
    make(api, stream, TEXT)
    answer = send(api, stream, frames(*[b"x"] * 512), TEXT)
    assert statuses(answer) == [204] * 512
    refused(send(api, stream, frames(*[b"x"] * 513), TEXT, 413), 413, "body_too_large")
    assert content(api, stream) == b"x" * 512


def test_a_body_of_32_mebibytes_is_taken_and_no_larger_one(api: httpx.Client, stream: str) -> None:
    make(api, stream, BINARY)
    half = b"x" * (16 * MEBIBYTE - 4)
    assert statuses(send(api, stream, frames(half, half))) == [204, 204]
    over = send(api, stream, frames(half, half + b"y"), status=413)
    refused(over, 413, "body_too_large")
    assert api.head(stream).headers["stream-next-offset"] == offset(2 * len(half))


def test_the_json_limit_is_per_frame(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON)
    large = b'"' + b"x" * (3 * MEBIBYTE) + b'"'
    assert statuses(send(api, stream, frames(large, large), JSON)) == [204, 204]
    over = b'"' + b"x" * (4 * MEBIBYTE) + b'"'
    refused(send(api, stream, frames(b"1", over), JSON, 413), 413, "body_too_large")
    assert api.head(stream).headers["stream-next-offset"] == offset(2 * len(large))


# Producers


def test_a_batch_is_one_request_of_its_producer(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON)
    first = send(api, stream, frames(b"1", b"[2,3]"), {**JSON, **producer(0)})
    assert statuses(first) == [204, 204]
    assert first.headers["producer-epoch"] == "0"
    assert first.headers["producer-seq"] == "0"
    post(api, stream, b"9", JSON)
    again = send(api, stream, frames(b"1", b"[2,3]"), {**JSON, **producer(0)}, 204)
    assert again.headers["stream-next-offset"] == offset(3), "where the first try ended"
    assert again.headers["producer-seq"] == "0"
    assert again.content == b""
    send(api, stream, frames(b"other"), {**JSON, **producer(0)}, 204)
    assert content(api, stream) == b"[1,2,3,9]"
    second = send(api, stream, frames(b"4"), {**JSON, **producer(1), **MINIMAL}, 204)
    assert second.headers["producer-seq"] == "1"
    assert second.headers["stream-next-offset"] == offset(5)


def test_a_producer_that_is_wrong_has_nothing_stored(api: httpx.Client, stream: str) -> None:
    make(api, stream, JSON)
    send(api, stream, frames(b"1"), {**JSON, **producer(0, 3)})
    gap = send(api, stream, frames(b"2", b"3"), {**JSON, **producer(2, 3)}, 409)
    assert refused(gap, 409, "producer_seq_conflict") == {"expected_seq": 1, "received_seq": 2}
    assert gap.headers["producer-expected-seq"] == "1"
    stale = send(api, stream, frames(b"2"), {**JSON, **producer(0, 2)}, 403)
    refused(stale, 403, "producer_epoch_stale")
    assert stale.headers["producer-epoch"] == "3"
    bad = send(api, stream, frames(b"2", b"{", b"3"), {**JSON, **producer(1, 3)}, 400)
    refused(bad, 400, "invalid_json")
    assert content(api, stream) == b"[1]"
    good = send(api, stream, frames(b"2", b"3"), {**JSON, **producer(1, 3)})
    assert statuses(good) == [204, 204], "the refused one used up no number"


def test_batches_and_single_appends_of_a_producer_share_their_numbers(api: httpx.Client, stream: str) -> None:
    make(api, stream, TEXT)
    post(api, stream, b"a", {**TEXT, **producer(0)}, 200)
    send(api, stream, frames(b"b", b"c"), {**TEXT, **producer(1)})
    post(api, stream, b"d", {**TEXT, **producer(2)}, 200)
    post(api, stream, b"x", {**TEXT, **producer(1)}, 204)
    assert content(api, stream) == b"abcd"


def test_a_batch_is_still_a_duplicate_after_a_kill(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        stream = f"{make_bucket(api)}/s"
        make(api, stream, BINARY)
        send(api, stream, frames(b"abc", b"de"), {**BINARY, **producer(0)})
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        again = send(api, stream, frames(b"abc", b"de"), {**BINARY, **producer(0)}, 204)
        assert again.headers["stream-next-offset"] == offset(5)
        assert content(api, stream) == b"abcde"
        fork = {"stream-forked-from": stream, "stream-fork-offset": "3", "stream-fork-sub-offset": "3"}
        refused(api.put(f"{stream}-fork", headers=fork), 400, "invalid_offset")
        fork["stream-fork-sub-offset"] = "1"
        make(api, f"{stream}-fork", fork)
        assert content(api, f"{stream}-fork") == b"abcd"


# As if each frame had come alone


def told(api: httpx.Client, bucket: str) -> list[dict[str, Any]]:
    """The feed without what must differ."""
    apart = ("position", "index", "at", "incarnation")
    return [{key: line[key] for key in line if key not in apart} for line in feed(api, bucket)]


@pytest.mark.parametrize(
    ("headers", "payloads"),
    [
        (BINARY, [b"abc", b"d", b"efghij", b"k"]),
        (TEXT, ["é".encode(), b"\n", b"hello"]),
        (JSON, [b"1", b"[22,333]", b'{"a":[1,2]}', b'["x",["y"],4]']),
    ],
)
def test_a_batch_leaves_what_single_appends_leave(
    api: httpx.Client, headers: dict[str, str], payloads: list[bytes]
) -> None:
    one, other = make_bucket(api), make_bucket(api)
    make(api, f"{one}/s", headers)
    make(api, f"{other}/s", headers)
    singly = [post(api, f"{one}/s", payload, headers).headers for payload in payloads]
    together = send(api, f"{other}/s", frames(*payloads), headers).json()
    assert [item["stream_next_offset"] for item in together] == [
        told["stream-next-offset"] for told in singly
    ]
    if headers is JSON:
        for item, single in zip(together, singly, strict=True):
            assert str(item["stream_record_start"]) == single["stream-record-start"]
            assert str(item["stream_record_next"]) == single["stream-record-next"]
    assert content(api, f"{one}/s") == content(api, f"{other}/s")
    assert told(api, one) == told(api, other)
    starts = [0, *(int(item["stream_next_offset"]) for item in together)]
    for number, at in enumerate(starts):
        for sub_offset in range(1, 8):
            outcomes = []
            for bucket in (one, other):
                fork = f"{bucket}/fork-{number}-{sub_offset}"
                lines = {
                    "stream-forked-from": f"{bucket}/s",
                    "stream-fork-offset": str(at),
                    "stream-fork-sub-offset": str(sub_offset),
                }
                answer = api.put(fork, headers=lines)
                found = content(api, fork) if answer.status_code == 201 else answer.json()
                outcomes.append((answer.status_code, found))
            assert outcomes[0] == outcomes[1]


def test_nothing_comes_between_the_frames_of_a_batch(api: httpx.Client, stream: str) -> None:
    make(api, stream, BINARY)

    def write(letter: bytes) -> None:
        with httpx.Client(base_url=api.base_url, timeout=60) as own:
            for _ in range(20):
                send(own, stream, frames(*[letter] * 10))

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = content(api, stream)
    assert len(found) == 800
    pieces = {found[at : at + 10] for at in range(0, 800, 10)}
    assert pieces == {letter * 10 for letter in (b"a", b"b", b"c", b"d")}


def test_a_batch_wakes_a_reader_once_with_all_of_it(api: httpx.Client, stream: str, server: Any) -> None:
    make(api, stream, JSON)
    with Raw(server) as raw:
        raw.ask("GET", f"{stream}?offset=0&live=long-poll&timeout=10")
        assert raw.is_silent_for(0.1)
        send(api, stream, frames(b"1", b"2", b"[3,4]"), JSON)
        assert raw.answer().body == b"[1,2,3,4]"
