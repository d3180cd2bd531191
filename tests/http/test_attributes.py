"""Attributes: what an application keeps beside a stream. They are not of the stream's bytes."""

import json
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import ask
from tests.http.surface import feed, make_bucket, position_of
from tests.http.wire import CLOSED, JSON, TEXT, content, make, offset, post, refused
from tests.server import Server

LIMIT = 16 * 1024

SEED: dict[str, Any] = {
    "title": "Support session",
    "metadata": {
        "purpose": "customer-support",
        "environment_id": "env_019e2590d33f711fabf42f2857cecd8a",
        "agent": {"id": "agent_019e390add9f7bac9b6cc806db46fcbd", "version": 2},
    },
}


@pytest.fixture
def stream(api: httpx.Client) -> str:
    path = f"{make_bucket(api)}/s"
    make(api, path, TEXT, b"hello")
    return path


def put(api: httpx.Client, stream: str, attributes: object, status: int = 204) -> httpx.Response:
    body = attributes if isinstance(attributes, bytes) else json.dumps(attributes).encode()
    answer = api.put(f"{stream}/attrs", headers=JSON, content=body)
    assert answer.status_code == status, answer.text
    return answer


def get(api: httpx.Client, stream: str) -> Any:
    answer = api.get(f"{stream}/attrs")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-incarnation"] == api.head(stream).headers["stream-incarnation"]
    return answer.json()


def test_a_stream_has_none_at_first(api: httpx.Client, stream: str) -> None:
    assert get(api, stream) == {}
    assert api.get(f"{stream}/attrs").content == b"{}"


def test_they_are_replaced_as_a_whole_and_cleared(api: httpx.Client, stream: str) -> None:
    told = put(api, stream, SEED)
    assert told.content == b""
    assert told.headers["stream-incarnation"]
    assert get(api, stream) == SEED
    put(api, stream, {"metadata": {"purpose": "debugging"}})
    assert get(api, stream) == {"metadata": {"purpose": "debugging"}}, "nothing is merged"
    put(api, stream, {"title": ""})
    assert get(api, stream) == {"title": ""}
    put(api, stream, {})
    assert get(api, stream) == {}


def test_the_stream_itself_does_not_change(api: httpx.Client, stream: str) -> None:
    before = {name: value for name, value in api.head(stream).headers.items() if name != "date"}
    put(api, stream, SEED)
    assert {name: value for name, value in api.head(stream).headers.items() if name != "date"} == before
    assert content(api, stream) == b"hello"


def test_unknown_fields_are_dropped_and_those_inside_kept(api: httpx.Client, stream: str) -> None:
    put(api, stream, {"title": "t", "agent": "x", "tags": [1], "metadata": {"agent": {"a": [None, 1.5]}}})
    assert get(api, stream) == {"title": "t", "metadata": {"agent": {"a": [None, 1.5]}}}
    put(api, stream, {"unknown": "only"})
    assert get(api, stream) == {}


IGNORED = "stream-attrs-ignored"


def test_fields_that_are_dropped_are_named_in_the_answer(api: httpx.Client, stream: str) -> None:
    answer = put(api, stream, {"title": "t", "tags": [1], "color": "red"})
    assert answer.headers[IGNORED] == "tags, color"
    assert IGNORED not in put(api, stream, SEED).headers
    assert IGNORED not in put(api, stream, {}).headers
    assert IGNORED not in api.get(f"{stream}/attrs").headers


def test_fields_that_are_dropped_from_a_new_stream_are_named_too(api: httpx.Client) -> None:
    path = f"{make_bucket(api)}/s"
    attributes = {"stream-attrs": '{"title": "t", "color": "red"}'}
    for status in (201, 200):
        answer = api.put(path, headers=attributes)
        assert answer.status_code == status
        assert answer.headers[IGNORED] == "color"
    assert get(api, path) == {"title": "t"}
    assert IGNORED not in api.put(path, headers={"stream-attrs": '{"title": "t"}'}).headers


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a b", "a%20b"),
        ("a,b", "a%2Cb"),
        ("100%", "100%25"),
        ("caf\u00e9", "caf%C3%A9"),
        ("x\r\nSet-Cookie: a=b", "x%0D%0ASet-Cookie%3A%20a%3Db"),
        ("\x00\x1b[31m", "%00%1B%5B31m"),
        ("+3", "%2B3"),
        ("", '""'),
        ("\ud800", "%3F"),
    ],
)
def test_a_name_that_no_header_could_hold_is_percent_encoded(
    server: Server, api: httpx.Client, stream: str, name: str, told: str
) -> None:
    body = json.dumps({name: 1, "title": "t"}).encode()
    answer = ask(server, "PUT", f"{stream}/attrs", "Content-Type: application/json", body=body)
    assert (answer.status, answer.headers[IGNORED]) == (204, told)
    assert get(api, stream) == {"title": "t"}


def test_only_so_many_names_are_told_and_the_rest_is_counted(api: httpx.Client, stream: str) -> None:
    names = [f"name-{number:04}" for number in range(2000)]
    told = put(api, stream, dict.fromkeys(names, 1)).headers[IGNORED]
    assert len(told) <= 1024
    *first, rest = told.split(", ")
    assert first == names[: len(first)]
    assert len(first) > 50
    assert rest == f"+{2000 - len(first)}"
    assert put(api, stream, {"x" * 5000: 1}).headers[IGNORED] == "+1"


@pytest.mark.parametrize("name", ["title", "metadata"])
def test_fields_have_their_types(api: httpx.Client, stream: str, name: str) -> None:
    put(api, stream, SEED)
    values: list[object] = [None, 1, True, [], "x" if name == "metadata" else {}]
    for value in values:
        refused(put(api, stream, {name: value}, 400), 400, "attributes_invalid")
    assert get(api, stream) == SEED


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"1",
        b'{"title":"a"} x',
        b'{"title":"\xff"}',
        b'{"title":"\\ud800"}',
        b'{"metadata":{"a":NaN}}',
        b'{"metadata":{"a":1e999}}',
        b'{"metadata":{"a":%b}}' % (b"9" * 5000),
        b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    ],
)
def test_what_is_no_attribute_object_changes_nothing(api: httpx.Client, stream: str, body: bytes) -> None:
    put(api, stream, SEED)
    refused(put(api, stream, body, 400), 400, "attributes_invalid")
    assert get(api, stream) == SEED


def test_the_content_type_must_be_json(api: httpx.Client, stream: str) -> None:
    answer = api.request("PUT", f"{stream}/attrs", content=b"{}")
    refused(answer, 400, "content_type_missing")
    refused(api.put(f"{stream}/attrs", headers=TEXT, content=b"{}"), 400, "attributes_invalid")
    for good in ("application/json; charset=utf-8", "Application/JSON"):
        answer = api.put(f"{stream}/attrs", headers={"content-type": good}, content=b'{"title":"x"}')
        assert answer.status_code == 204


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u20ac", "\U0001f600"])
def test_16_kibibytes_are_allowed_and_not_one_more(api: httpx.Client, stream: str, letter: str) -> None:
    room = LIMIT - len('{"title":""}')
    size = len(letter.encode())
    title = letter * (room // size) + "x" * (room % size)
    fitting = {"title": title}
    put(api, stream, fitting)
    assert get(api, stream) == fitting
    assert len(api.get(f"{stream}/attrs").content) == LIMIT
    refused(put(api, stream, {"title": title + "x"}, 400), 400, "attributes_invalid")
    spaced = json.dumps({"title": title, "unknown": "y" * 1000}, indent=4).encode()
    put(api, stream, spaced)
    assert get(api, stream) == fitting, "what is counted is what is kept"
    refused(put(api, stream, b" " * 5 * LIMIT + b"{}", 400), 400, "attributes_invalid")


def test_the_same_again_is_no_event(api: httpx.Client, stream: str) -> None:
    bucket = stream.rpartition("/")[0]
    put(api, stream, {})
    before = position_of(api, bucket)
    assert [line["kind"] for line in feed(api, bucket)] == ["create", "append"]
    put(api, stream, SEED)
    after = position_of(api, bucket)
    assert after > before
    put(api, stream, json.dumps(SEED, indent=2, sort_keys=True).encode())
    assert position_of(api, bucket) == after
    assert feed(api, bucket)[-1]["event"] == {"attributes": SEED}


def test_they_can_be_changed_after_the_stream_was_closed(api: httpx.Client, stream: str) -> None:
    post(api, stream, b"", CLOSED)
    put(api, stream, SEED)
    assert get(api, stream) == SEED
    assert api.head(stream).headers["stream-closed"] == "true"


def test_they_go_with_their_stream(api: httpx.Client, stream: str) -> None:
    put(api, stream, SEED)
    make(api, f"{stream}-fork", {"stream-forked-from": stream})
    api.delete(stream)
    refused(api.get(f"{stream}/attrs"), 410, "stream_gone")
    refused(put(api, stream, {"title": "x"}, 410), 410, "stream_gone")
    api.delete(f"{stream}-fork")
    refused(api.get(f"{stream}/attrs"), 404, "stream_not_found")
    refused(put(api, stream, SEED, 404), 404, "stream_not_found")
    make(api, stream, TEXT)
    assert get(api, stream) == {}
    make(api, f"{stream}-short", {**TEXT, "stream-ttl": "0"})
    refused(api.get(f"{stream}-short/attrs"), 404, "stream_not_found")
    refused(put(api, f"{stream}-short", SEED, 404), 404, "stream_not_found")


def test_an_incarnation_can_be_demanded(api: httpx.Client, stream: str) -> None:
    old = api.head(stream).headers["stream-incarnation"]
    api.delete(stream)
    new = make(api, stream, TEXT).headers["stream-incarnation"]
    for name, status in ((old, 412), (new, 204)):
        headers = {**JSON, "stream-incarnation": name}
        answer = api.put(f"{stream}/attrs", headers=headers, content=b'{"title":"x"}')
        assert answer.status_code == status
        seen = api.get(f"{stream}/attrs", headers={"stream-incarnation": name})
        assert seen.status_code == (412 if status == 412 else 200)
        assert answer.headers["stream-incarnation"] == seen.headers["stream-incarnation"] == new


# At creation


def create(api: httpx.Client, stream: str, attributes: str | None, status: int) -> httpx.Response:
    headers = TEXT if attributes is None else {**TEXT, "stream-attrs": attributes}
    answer = api.put(stream, headers=headers)
    assert answer.status_code == status, answer.text
    return answer


def test_a_stream_can_be_created_with_them(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    create(api, stream, json.dumps(SEED), 201)
    assert get(api, stream) == SEED
    create(api, stream, json.dumps(SEED), 200)
    create(api, stream, json.dumps(dict(reversed(SEED.items())), indent=1).replace("\n", ""), 200)
    create(api, stream, json.dumps({**SEED, "unknown": 1}), 200)
    create(api, stream, None, 200)
    refused(create(api, stream, '{"title":"other"}', 409), 409, "stream_exists")
    refused(create(api, stream, "{}", 409), 409, "stream_exists")
    assert get(api, stream) == SEED
    assert feed(api, stream.rpartition("/")[0])[0]["event"] == {"attributes": SEED}


def test_the_ones_of_now_are_compared_not_the_first(api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    create(api, stream, '{"title":"first"}', 201)
    put(api, stream, {"title": "second"})
    refused(create(api, stream, '{"title":"first"}', 409), 409, "stream_exists")
    create(api, stream, '{"title":"second"}', 200)
    put(api, stream, {})
    create(api, stream, "{}", 200)


def test_none_are_the_same_as_an_empty_object(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    create(api, f"{bucket}/a", "{}", 201)
    create(api, f"{bucket}/a", None, 200)
    create(api, f"{bucket}/b", None, 201)
    create(api, f"{bucket}/b", "{}", 200)
    assert get(api, f"{bucket}/a") == get(api, f"{bucket}/b") == {}


def test_a_bad_header_creates_nothing(server: Server, api: httpx.Client) -> None:
    stream = f"{make_bucket(api)}/s"
    for text in ("", "{", "[]", '{"title":1}'):
        refused(create(api, stream, text, 400), 400, "attributes_invalid")
    room = LIMIT - len('{"title":""}')
    refused(create(api, stream, '{"title":"%s"}' % ("x" * (room + 1)), 400), 400, "attributes_invalid")
    raw = 'Stream-Attrs: {"title":"caf\u00e9"}'.encode()
    assert ask(server, "PUT", stream, raw, body=b"").code == "header_invalid"
    assert api.head(stream).status_code == 404
    create(api, stream, '{"title":"%s"}' % ("x" * room), 201)
    escaped = f"{stream}-escaped"
    create(api, escaped, '{"title":"caf\\u00e9 \\ud83d\\ude00"}', 201)
    assert get(api, escaped) == {"title": "caf\u00e9 \U0001f600"}


def test_flat_paths_take_them_too(api: httpx.Client, path: str) -> None:
    make(api, path, {"stream-attrs": '{"title":"flat"}'})
    assert get(api, path.replace("/v1/stream/", "/_default/")) == {"title": "flat"}


def test_they_survive_a_restart(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = make_bucket(api)
        create(api, f"{bucket}/a", json.dumps(SEED), 201)
        create(api, f"{bucket}/b", json.dumps(SEED), 201)
        put(api, f"{bucket}/b", {"title": "caf\u00e9"})
        create(api, f"{bucket}/c", json.dumps(SEED), 201)
        put(api, f"{bucket}/c", {})
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        assert [get(api, f"{bucket}/{name}") for name in "abc"] == [SEED, {"title": "caf\u00e9"}, {}]
        assert api.head(f"{bucket}/a").headers["stream-next-offset"] == offset(0)
