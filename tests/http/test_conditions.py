"""Conditional requests: entity tags, and which incarnation of a stream a client means."""

import httpx
import pytest
from tests.http.raw import ask
from tests.http.wire import BINARY, CLOSED, TEXT, content, make, offset, post, refused
from tests.server import Server


def spellings(tag: str) -> list[str]:
    """Ways to name a tag in If-None-Match."""
    return ["*", tag, f"W/{tag}", f'"a", {tag}', f'W/"a",{tag} , "b"', f'{tag}, "b"']


def test_what_the_client_has_is_not_sent_again(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    fresh = api.get(f"{path}?offset=0")
    for known in spellings(fresh.headers["etag"]):
        answer = api.get(f"{path}?offset=0", headers={"if-none-match": known})
        assert answer.status_code == 304, known
        assert answer.content == b""
        for name in (
            "etag",
            "stream-next-offset",
            "stream-up-to-date",
            "cache-control",
            "stream-incarnation",
        ):
            assert answer.headers[name] == fresh.headers[name]
        head = api.head(path, headers={"if-none-match": known})
        is_its_tag = known.strip() == "*"
        assert head.status_code == (304 if is_its_tag else 200)
    tail = api.head(path).headers["etag"]
    for known in spellings(tail):
        assert api.head(path, headers={"if-none-match": known}).status_code == 304


def test_another_tag_gets_everything(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    tag = api.get(path).headers["etag"]
    for known in ('"other"', tag.strip('"'), tag[:-1], "", '"*"', tag[:-1] + ':c"'):
        answer = api.get(path, headers={"if-none-match": known})
        assert (answer.status_code, answer.content) == (200, b"hello")


def test_lines_of_if_none_match_are_joined(server: Server, api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    tag = api.get(path).headers["etag"]
    for lines in (
        ['If-None-Match: "a"', f"If-None-Match: {tag}"],
        [f"If-None-Match: {tag}", "If-None-Match: x"],
    ):
        assert ask(server, "GET", path, *lines).status == 304


def test_a_tag_changes_with_an_append_and_with_closing(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    tags = [api.get(path).headers["etag"]]
    post(api, path, b"!", TEXT)
    tags.append(api.get(path).headers["etag"])
    post(api, path, b"", CLOSED)
    tags.append(api.get(path).headers["etag"])
    assert len(set(tags)) == 3
    for tag in tags[:2]:
        answer = api.get(path, headers={"if-none-match": tag})
        assert answer.status_code == 200
        assert answer.headers["stream-closed"] == "true"
    final = api.get(path, headers={"if-none-match": tags[2]})
    assert final.status_code == 304
    assert final.headers["stream-closed"] == "true"


def test_the_tag_of_an_inner_chunk_survives_appends_and_closing(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    tag = api.get(f"{path}?max_bytes=3").headers["etag"]
    post(api, path, b"!", {**TEXT, **CLOSED})
    assert api.get(f"{path}?max_bytes=3", headers={"if-none-match": tag}).status_code == 304


def test_now_is_never_not_modified(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"hello")
    answer = api.get(f"{path}?offset=now", headers={"if-none-match": "*"})
    assert answer.status_code == 200


@pytest.mark.parametrize("spelling", ["{tag}", '"a", {tag}', '{tag} , "b"', "*"])
def test_if_match_lets_a_write_pass_in_the_state_it_names(
    api: httpx.Client, path: str, spelling: str
) -> None:
    make(api, path, TEXT, b"a")
    tag = api.head(path).headers["etag"]
    answer = post(api, path, b"b", {**TEXT, "if-match": spelling.format(tag=tag)})
    new_tag = answer.headers["etag"]
    assert new_tag == api.head(path).headers["etag"]
    again = api.put(path, headers={**TEXT, "if-match": spelling.format(tag=new_tag)})
    assert again.status_code == 200


def test_if_match_takes_the_tag_of_a_read_that_reached_the_tail(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"abc")
    partial = api.get(f"{path}?max_bytes=2").headers["etag"]
    refused(api.post(path, headers={**TEXT, "if-match": partial}, content=b"x"), 412, "precondition_failed")
    full = api.get(f"{path}?offset=1").headers["etag"]
    post(api, path, b"d", {**TEXT, "if-match": full})
    assert content(api, path) == b"abcd"


def test_if_match_refuses_any_other_state(api: httpx.Client, path: str) -> None:
    old = make(api, path, TEXT, b"a").headers["etag"]
    post(api, path, b"b", TEXT)
    tag = api.head(path).headers["etag"]
    foreign = [
        '"x"',
        "",
        old,
        tag[:-1] + ':c"',
        tag.replace('"1-', '"2-'),
        f'"x", {old}',
        '"*"',
        tag.strip('"'),
    ]
    for known in foreign:
        answer = api.post(path, headers={**TEXT, "if-match": known}, content=b"x")
        refused(answer, 412, "precondition_failed")
        refused(api.put(path, headers={**TEXT, "if-match": known}), 412, "precondition_failed")
    assert content(api, path) == b"ab"


def test_if_match_sees_the_closed_flag(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"a")
    open_tag = api.head(path).headers["etag"]
    post(api, path, b"", {**CLOSED, "if-match": open_tag})
    closed_tag = api.head(path).headers["etag"]
    assert closed_tag != open_tag
    assert api.put(path, headers={**TEXT, **CLOSED, "if-match": closed_tag}).status_code == 200
    stale = api.put(path, headers={**TEXT, **CLOSED, "if-match": open_tag})
    refused(stale, 412, "precondition_failed")


@pytest.mark.parametrize("known", ["*", '"x"', '"1-0-1-1:0:0"'])
def test_if_match_refuses_to_create(api: httpx.Client, path: str, known: str) -> None:
    refused(api.put(path, headers={**TEXT, "if-match": known}), 412, "precondition_failed")
    assert api.head(path).status_code == 404


def test_a_stream_made_again_is_another_incarnation(api: httpx.Client, path: str) -> None:
    first = make(api, path, TEXT, b"same")
    read_tag = api.get(path).headers["etag"]
    assert api.delete(path).headers["stream-incarnation"] == first.headers["stream-incarnation"]
    second = make(api, path, TEXT, b"same")
    assert first.headers["stream-incarnation"] != second.headers["stream-incarnation"]
    assert first.headers["etag"] != second.headers["etag"]
    assert api.get(path, headers={"if-none-match": read_tag}).status_code == 200
    answer = api.post(path, headers={**TEXT, "if-match": first.headers["etag"]}, content=b"x")
    refused(answer, 412, "precondition_failed")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "GET long-poll", "GET sse"])
def test_the_incarnation_is_a_precondition(api: httpx.Client, path: str, method: str) -> None:
    method, _, live = method.partition(" ")
    query = f"?offset=0&live={live}" if live else ""
    first = make(api, path, TEXT, b"a").headers["stream-incarnation"]
    api.delete(path)
    second = make(api, path, TEXT, b"a").headers["stream-incarnation"]
    body = b"x" if method == "POST" else b""
    for wrong in (first, "", "x", "2" + second[1:], second + "0"):
        answer = api.request(
            method, path + query, headers={**TEXT, "stream-incarnation": wrong}, content=body
        )
        assert answer.status_code == 412, wrong
        if method != "HEAD":
            refused(answer, 412, "incarnation_mismatch")
        assert answer.headers["stream-incarnation"] == second
    assert api.head(path).headers["stream-next-offset"] == offset(1)
    if "sse" not in query:
        right = api.request(
            method, path + query, headers={**TEXT, "stream-incarnation": second}, content=body
        )
        assert right.is_success


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
def test_every_answer_about_a_stream_names_its_incarnation(api: httpx.Client, path: str, method: str) -> None:
    incarnation = make(api, path, TEXT, b"a").headers["stream-incarnation"]
    body = b"x" if method == "POST" else b""
    wrong = {"GET": {"stream-incarnation": "x"}, "PUT": BINARY, "POST": {**TEXT, "if-match": '"x"'}}
    for headers in (wrong.get(method, {**TEXT, "stream-incarnation": "x"}), TEXT):
        answer = api.request(method, path, headers=headers, content=body)
        assert answer.headers["stream-incarnation"] == incarnation
