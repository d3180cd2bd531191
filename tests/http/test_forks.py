"""Forks: a stream that shares the beginning of another one."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.http.raw import Raw, ask
from tests.http.signs import begin_long_poll, waiting_count
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, content, make, offset, post, producer, refused
from tests.server import Server


def fork(api: httpx.Client, path: str, source: str, **headers: str) -> httpx.Response:
    """Fork a stream; `headers` as in Python."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.put(path, headers={"stream-forked-from": source, **named})


def test_a_fork_shares_the_bytes_before_it_and_nothing_after(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"shared")
    answer = fork(api, path + "-f", path, stream_fork_offset=offset(4))
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["stream-next-offset"] == offset(4)
    assert not [name for name in answer.headers if "fork" in name]
    post(api, path, b"!", TEXT)
    assert post(api, path + "-f", b"own", TEXT).headers["stream-next-offset"] == offset(7)
    assert content(api, path) == b"shared!"
    assert content(api, path + "-f") == b"sharown"
    assert api.get(f"{path}-f?offset=3").content == b"rown"
    assert api.get(f"{path}-f?offset=1&max_bytes=4").content == b"haro"
    assert not [name for name in api.head(path + "-f").headers if "fork" in name]


def test_a_fork_without_an_offset_begins_at_the_tail_and_repeats(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"abc")
    made = fork(api, path + "-f", path)
    assert made.headers["stream-next-offset"] == offset(3)
    post(api, path, b"more", TEXT)
    again = fork(api, path + "-f", path)
    assert again.status_code == 200
    assert again.headers["stream-incarnation"] == made.headers["stream-incarnation"]
    refused(fork(api, path + "-f", path, stream_fork_offset="7"), 409, "stream_exists")
    refused(api.put(path + "-f", headers=TEXT), 409, "stream_exists")


def test_a_fork_may_bring_its_first_body_and_be_closed(api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b"[1,2,3]")
    answer = api.put(
        path + "-f",
        headers={"stream-forked-from": path, "stream-fork-offset": "2", **CLOSED},
        content=b'["own"]',
    )
    assert answer.status_code == 201, answer.text
    assert content(api, path + "-f") == b'[1,2,"own"]'
    assert answer.headers["stream-closed"] == "true"


def test_a_fork_of_a_closed_stream_is_open_and_begins_without_writers(api: httpx.Client, path: str) -> None:
    make(api, path, {**TEXT, **producer(0), "stream-seq": "z"}, b"abc")
    post(api, path, b"", CLOSED)
    assert "stream-closed" not in fork(api, path + "-f", path).headers
    post(api, path + "-f", b"x", {**TEXT, **producer(0), "stream-seq": "a"}, status=200)
    assert content(api, path + "-f") == b"abcx"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"stream-fork-offset": "4"}, 400, "offset_beyond_tail"),
        ({"stream-fork-offset": ""}, 400, "invalid_offset"),
        ({"stream-fork-offset": "x"}, 400, "invalid_offset"),
        ({"stream-fork-sub-offset": "1"}, 400, "invalid_offset"),
        ({"stream-fork-offset": "0", "stream-fork-sub-offset": "4"}, 400, "invalid_offset"),
        ({"stream-fork-offset": "0", "stream-fork-sub-offset": "01"}, 400, "invalid_offset"),
        ({"stream-fork-offset": "0", "stream-fork-sub-offset": "+1"}, 400, "invalid_offset"),
        ({"content-type": "application/json"}, 409, "content_type_mismatch"),
        ({"stream-ttl": "x"}, 400, "invalid_ttl"),
        ({"if-match": "*"}, 412, "precondition_failed"),
    ],
)
def test_a_refused_fork_leaves_nothing_behind(
    api: httpx.Client, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    make(api, path, TEXT, b"abc")
    refused(api.put(path + "-f", headers={"stream-forked-from": path, **headers}), status, code)
    assert api.head(path + "-f").status_code == 404
    assert api.delete(path).status_code == 204
    refused(api.get(path), 404, "stream_not_found")


def test_a_fork_needs_a_source(api: httpx.Client, path: str) -> None:
    refused(fork(api, path + "-f", path), 404, "stream_not_found")
    refused(fork(api, path + "-f", "no-path"), 400, "header_invalid")
    refused(fork(api, path + "-f", path + "%FF"), 400, "invalid_stream_id")
    refused(api.put(path + "-f", headers={"stream-fork-offset": "0"}), 400, "header_invalid")
    refused(api.put(path + "-f", headers={"stream-fork-sub-offset": "1"}), 400, "header_invalid")


def test_source_and_fork_are_in_one_bucket(api: httpx.Client, path: str) -> None:
    bucket = path.rpartition("/")[2]
    make(api, f"/v1/stream/{bucket}/one", TEXT, b"abc")
    refused(fork(api, path + "-f", f"/v1/stream/{bucket}/one"), 400, "fork_across_buckets")
    assert fork(api, f"/{bucket}/two", f"/v1/stream/{bucket}/one").status_code == 201
    assert fork(api, f"/v1/stream/{bucket}/three", f"/{bucket}/two").status_code == 201
    assert content(api, f"/{bucket}/three") == b"abc"


def test_a_sub_offset_counts_bytes_within_one_append(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"abc")
    post(api, path, b"defg", TEXT)
    for start, sub, expected in (
        (0, 2, b"ab"),
        (3, 4, b"abcdefg"),
        (0, 3, b"abc"),
        (3, 1, b"abcd"),
        (0, 0, b""),
    ):
        name = f"{path}-{start}-{sub}"
        made = fork(api, name, path, stream_fork_offset=str(start), stream_fork_sub_offset=str(sub))
        assert made.status_code == 201
        assert content(api, name) == expected
    refused(
        fork(api, path + "-x", path, stream_fork_offset="0", stream_fork_sub_offset="4"),
        400,
        "invalid_offset",
    )


def test_a_sub_offset_counts_messages_of_json(api: httpx.Client, path: str) -> None:
    make(api, path, JSON, b'["one","two"]')
    post(api, path, b'["three"]', JSON)
    name = path + "-f"
    assert fork(api, name, path, stream_fork_offset="0", stream_fork_sub_offset="1").status_code == 201
    assert content(api, name) == b'["one"]'
    refused(
        fork(api, path + "-x", path, stream_fork_offset="0", stream_fork_sub_offset="3"),
        400,
        "invalid_offset",
    )
    refused(fork(api, path + "-x", path, stream_fork_offset="2"), 400, "invalid_offset")


def test_a_source_is_gone_but_kept_while_forks_need_it(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"abc")
    fork(api, path + "-1", path)
    fork(api, path + "-2", path + "-1", stream_fork_offset="2")
    assert api.delete(path).status_code == 204
    assert api.head(path).status_code == 410
    for answer in (api.get(path), api.post(path, headers=TEXT, content=b"x"), api.delete(path)):
        refused(answer, 410, "stream_gone")
    refused(api.put(path, headers=TEXT), 409, "stream_exists")
    refused(fork(api, path + "-3", path), 409, "stream_exists")
    assert content(api, path + "-1") == b"abc"
    api.delete(path + "-1")
    assert content(api, path + "-2") == b"ab"
    assert api.head(path).status_code == 410
    api.delete(path + "-2")
    assert api.head(path).status_code == 404
    assert api.head(path + "-1").status_code == 404
    make(api, path, JSON)


def test_an_expired_source_is_gone_but_kept_too(
    timed_server: Server, timed_api: httpx.Client, path: str
) -> None:
    make(timed_api, path, {**TEXT, "stream-ttl": "100"}, b"abc")
    fork(timed_api, path + "-f", path, stream_ttl="3600")
    timed_server.pass_time(101)
    refused(timed_api.get(path), 410, "stream_gone")
    assert content(timed_api, path + "-f") == b"abc"


def test_a_long_poll_on_a_fork_does_not_wake_for_the_source(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"abc")
    fork(api, path + "-f", path)
    with ThreadPoolExecutor() as pool:
        waiting = begin_long_poll(pool, api, f"{path}-f?offset=3&live=long-poll&timeout=60")
        post(api, path, b"source", TEXT)
        assert waiting_count(api, "long_poll") == 1
        post(api, path + "-f", b"fork", TEXT)
        assert waiting.result().content == b"fork"


def test_a_source_path_may_be_percent_encoded(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path + "é x", TEXT, b"abc")
    made = ask(server, "PUT", path + "-f", f"Stream-Forked-From: {path}%C3%A9%20x", body=b"")
    assert made.status == 201
    assert content(api, path + "-f") == b"abc"


def test_a_fork_keeps_its_own_lifetime(api: httpx.Client, path: str) -> None:
    make(api, path, {**BINARY, "stream-ttl": "3600"})
    fork(api, path + "-same", path)
    fork(api, path + "-own", path, stream_ttl="60")
    assert api.head(path + "-same").headers["stream-ttl"] == "3600"
    assert api.head(path + "-own").headers["stream-ttl"] == "60"


def test_a_source_and_its_fork_made_at_once_never_mix_their_types(server: Server, path: str) -> None:
    """The fork's body is JSON only if its source is there: what cannot be checked is not stored."""
    for number in range(20):
        name = f"{path}-{number}"
        with Raw(server) as source, Raw(server) as fork:
            source.ask("PUT", name, "Content-Type: application/json", body=b"[1]")
            fork.ask("PUT", f"{name}-f", f"Stream-Forked-From: {name}", body=b"{not json")
            assert source.answer().status == 201
            assert fork.answer().status in (400, 404)
        assert ask(server, "HEAD", f"{name}-f").status == 404
