"""JSON mode: messages keep their text, and what is not JSON is refused."""

import httpx
import pytest
from tests.http.wire import JSON, TEXT, content, make, offset, post, refused


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"b":1,"a":2}', b'[{"b":1,"a":2}]'),
        (b'{"a":1,"a":2}', b'[{"a":1,"a":2}]'),
        (b"123456789012345678901234567890", b"[123456789012345678901234567890]"),
        (b"[1.0,1e400,-0,0.10]", b"[1.0,1e400,-0,0.10]"),
        (b'["\\u00e9","\xc3\xa9","\\/"]', b'["\\u00e9","\xc3\xa9","\\/"]'),
        (b"[[1,2],[3],[]]", b"[[1,2],[3],[]]"),
        (b"[[]]", b"[[]]"),
        (b"null", b"[null]"),
        (b' [ 1 , { "x" : 2 } ] ', b'[1,{ "x" : 2 }]'),
        (b'\n{"x":\n1}\n', b'[{"x":\n1}]'),
    ],
)
def test_the_text_of_a_message_is_kept(api: httpx.Client, path: str, body: bytes, expected: bytes) -> None:
    make(api, path, {"content-type": "Application/JSON; charset=utf-8"})
    post(api, path, body, JSON)
    assert content(api, path) == expected
    make(api, path + "-put", JSON, body)
    assert content(api, path + "-put") == expected


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1,]",
        b"[1 2]",
        b"{'a':1}",
        b"NaN",
        b"[NaN]",
        b"Infinity",
        b"[-Infinity]",
        b"01",
        b"1 2",
        b"[1][2]",
        b" ",
        b"\xff",
        b'"\xff"',
        b'["\xc3"]',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b'"a\nb"',
        b'"\\x"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"truefalse",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_not_json_is_refused_and_changes_nothing(api: httpx.Client, path: str, body: bytes) -> None:
    refused(api.put(path, headers=JSON, content=body), 400, "invalid_json")
    assert api.head(path).status_code == 404
    make(api, path, JSON, b"[1]")
    refused(api.post(path, headers=JSON, content=body), 400, "invalid_json")
    assert content(api, path) == b"[1]"


def test_an_empty_array_makes_an_empty_stream_and_is_no_append(api: httpx.Client, path: str) -> None:
    assert make(api, path, JSON, b" [ ] ").headers["stream-next-offset"] == offset(0)
    refused(api.post(path, headers=JSON, content=b"[]"), 400, "invalid_json")
    refused(api.post(path, headers={**JSON, "stream-closed": "true"}, content=b"[]"), 400, "invalid_json")
    assert "stream-closed" not in api.head(path).headers
    assert content(api, path) == b"[]"


def test_a_json_body_has_4_mebibytes_and_65536_messages_at_most(api: httpx.Client, path: str) -> None:
    make(api, path, JSON)
    text = b'"' + b"x" * ((4 << 20) - 2) + b'"'
    post(api, path, text, JSON)
    post(api, path, b"[" + b",".join([b"1"] * 65_536) + b"]", JSON)
    before = api.head(path).headers["etag"]
    for body in (text + b" ", b"[" + b",".join([b"1"] * 65_537) + b"]"):
        refused(api.post(path, headers=JSON, content=body), 413, "body_too_large")
        refused(api.put(path + "-new", headers=JSON, content=body), 413, "body_too_large")
    assert api.head(path).headers["etag"] == before
    assert api.head(path + "-new").status_code == 404
    first = api.get(path)
    assert first.content == b"[" + text + b"]", "a message larger than max_bytes is sent whole and alone"
    assert first.headers["stream-next-offset"] == offset(4 << 20)


def test_other_types_with_json_in_their_name_are_bytes(api: httpx.Client, path: str) -> None:
    for kind in ("application/x-ndjson", "application/jsonx", "text/json"):
        name = f"{path}-{kind.replace('/', '-')}"
        make(api, name, {"content-type": kind}, b"{not json")
        assert content(api, name) == b"{not json"


def test_a_text_stream_takes_anything(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, bytes(range(256)))
    assert content(api, path) == bytes(range(256))
