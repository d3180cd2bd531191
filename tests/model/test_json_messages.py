"""JSON mode: what is a message, and that its text stays as it was sent."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ursula.model.limits import JSON_BODY_BYTES_MAX, JSON_MESSAGES_MAX
from ursula.model.text.json_messages import JsonInvalid, JsonTooLarge, split


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b'{"a": 1}', (b'{"a": 1}',)),
        (b" \r\n\t7 ", (b"7",)),
        (b'[1, "two" ,{"x" : [3]}]', (b"1", b'"two"', b'{"x" : [3]}')),
        (b"[[1, 2], [3]]", (b"[1, 2]", b"[3]")),
        (b"[[]]", (b"[]",)),
        (b" [ ] ", ()),
        (b"null", (b"null",)),
        (
            b"[1.0, 1e400, 123456789012345678901234567890]",
            (b"1.0", b"1e400", b"123456789012345678901234567890"),
        ),
        (b'{"b":1,"a":2,"b":3}', (b'{"b":1,"a":2,"b":3}',)),
        ('["\\u00e9", "é"]'.encode(), (b'"\\u00e9"', '"é"'.encode())),
    ],
)
def test_a_body_is_split_one_level_deep_and_keeps_its_text(body: bytes, messages: tuple[bytes, ...]) -> None:
    assert split(body, may_be_empty=True) == messages


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[1,]",
        b"[1 2]",
        b"1 2",
        b"NaN",
        b"[NaN]",
        b"-Infinity",
        b"[Infinity]",
        b"01",
        b'"a\nb"',
        b"'a'",
        b'["\xff"]',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf1",
        b"[" * 200_000,
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(JsonInvalid):
        split(body)


@pytest.mark.parametrize("body", [b"[]", b" [ \n] "])
def test_an_empty_array_holds_no_message(body: bytes) -> None:
    with pytest.raises(JsonInvalid, match=r"^an empty array has no messages$"):
        split(body)
    assert split(body, may_be_empty=True) == ()


def test_bodies_and_counts_are_bounded() -> None:
    assert len(split(b"[" + b"1," * (JSON_MESSAGES_MAX - 1) + b"1]")) == JSON_MESSAGES_MAX
    with pytest.raises(JsonTooLarge):
        split(b"[" + b"1," * JSON_MESSAGES_MAX + b"1]")
    largest = b'"' + b"x" * (JSON_BODY_BYTES_MAX - 2) + b'"'
    assert split(largest) == (largest,)
    with pytest.raises(JsonTooLarge):
        split(largest + b" ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, print_blob=True)
@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_every_value_comes_back(value: object, ascii_only: bool, indent: int | None) -> None:
    messages = split(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode(), may_be_empty=True)
    assert [json.loads(message) for message in messages] == (value if isinstance(value, list) else [value])


@settings(max_examples=300, print_blob=True)
@given(st.text(alphabet='[]{},:"0123.eE+-\\untrfalsNI \n\t\x00é').map(str.encode) | st.binary(max_size=8))
def test_nothing_is_taken_that_another_parser_refuses(body: bytes) -> None:
    try:
        messages = split(body, may_be_empty=True)
    except JsonInvalid:
        return

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} was taken")

    for message in messages:
        json.loads(message.decode(), parse_constant=refuse)
    json.loads(body.decode(), parse_constant=refuse)
