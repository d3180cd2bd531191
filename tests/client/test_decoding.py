"""What is decoded without a server: events, arrays of JSON text, errors, delays."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ursula.client import (
    Closed,
    Fenced,
    Gone,
    InvalidAnswer,
    NotFound,
    OutcomeUnknown,
    Patience,
    Refused,
    Retryable,
)
from ursula.client.connection.retry import Attempts
from ursula.client.errors import error_of_answer
from ursula.client.formats.event_stream import EventReader, ServerEvent
from ursula.client.formats.json_text import decode, elements

texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.tuples(st.sampled_from(["data", "control"]), st.lists(texts, min_size=1, max_size=3))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(1, 20)),
)
def test_events_come_back_whatever_the_cuts(
    events: list[tuple[str, list[str]]], line_end: str, cuts: list[int]
) -> None:
    lines = []
    for name, data in events:
        lines += [":", f"event: {name}", *(f"data: {line}" for line in data), "id: 7", ""]
    rest = "".join(line + line_end for line in lines).encode()
    reader, found = EventReader(), []
    for cut in cuts:
        found += reader.feed(rest[:cut])
        rest = rest[cut:]
    found += reader.feed(rest)
    # A carriage return at the very end may be half of a line end: a comment shows that it is not.
    found += reader.feed(b":\n")
    assert found == [ServerEvent(name, "\n".join(data)) for name, data in events]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)


@given(st.lists(json_values), st.sampled_from(["", " ", "\n\t"]))
def test_the_elements_of_an_array_are_given_as_they_are_written(values: list[Any], space: str) -> None:
    written = [json.dumps(value, indent=1) for value in values]
    array = f"{space}[{space}" + f"{space},{space}".join(written) + f"{space}]{space}"
    assert elements(array.encode()) == written


def test_numbers_keep_their_digits() -> None:
    assert elements(b"[1.0,1e400,0.10,123456789012345678901234567890]") == [
        "1.0",
        "1e400",
        "0.10",
        "123456789012345678901234567890",
    ]


BIG = "7" * 5000
DEEP = "[" * 5000 + "]" * 5000


def test_integers_of_any_length_are_decoded_exactly() -> None:
    text = f'[1, {BIG}, {{"a": -{BIG}, "b": 1.5}}, "{BIG}", true, null]'
    assert decode(text) == [1, Decimal(BIG), {"a": Decimal(f"-{BIG}"), "b": 1.5}, BIG, True, None]
    assert elements(text.encode())[1] == BIG


def depth_of(value: Any) -> int:
    depth = 1
    while value:
        (value,), depth = value, depth + 1
    return depth


def test_nesting_of_any_depth_is_decoded() -> None:
    value = decode(f'[{DEEP}, {{"a": {DEEP}}}]'.encode())
    assert depth_of(value[0]) == depth_of(value[1]["a"]) == 5000
    assert elements(f'[ {DEEP} , "[]," , 1.0,[ ] ]'.encode()) == [DEEP, '"[],"', "1.0", "[ ]"]


@given(json_values, st.sampled_from([None, 1]))
def test_the_slow_decoder_decodes_as_the_quick_one(value: Any, indent: int | None) -> None:
    assert decode(json.dumps([value, int(BIG[:4000])], indent=indent)) == [value, int(BIG[:4000])]
    text = json.dumps(value, indent=indent)
    assert decode(f"[{BIG},{text}]") == [Decimal(BIG), value]
    assert decode(f'{{"a":{text},"b":{BIG}}}') == {"a": value, "b": Decimal(BIG)}


@pytest.mark.parametrize(
    "tail",
    ["", "[", "{", "]]", "},", ",]", ",}", ":1]", "x]", ",01]", ',"\x01"]', ',{"a"}]', ",{1:2}]", "] 1"],
)
def test_what_is_no_json_is_an_error_in_both_decoders(tail: str) -> None:
    for number in ("1", BIG):
        with pytest.raises(InvalidAnswer):
            decode(f"[{number}{tail}")


@pytest.mark.parametrize("text", ["", "{}", "[1", "[1 2]", "[,]", "[\xff"])
def test_what_is_no_array_has_no_elements(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        elements(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_json", Refused),
        (400, "body_incomplete", Retryable),
        (403, "producer_epoch_stale", Fenced),
        (404, "stream_not_found", NotFound),
        (408, "body_timeout", Retryable),
        (409, "stream_closed", Closed),
        (410, "offset_trimmed", Gone),
        (413, "body_too_large", Refused),
        (429, "rate_limited", Retryable),
        (500, "internal_error", OutcomeUnknown),
        (500, "object_damaged", Refused),
        (502, "", OutcomeUnknown),
        (503, "unavailable", Retryable),
        (503, "write_backpressure", Retryable),
        (503, "store_unavailable", Retryable),
        (503, "outcome_unknown", OutcomeUnknown),
        (503, "", OutcomeUnknown),
        (504, "", OutcomeUnknown),
    ],
)
def test_an_answer_says_whether_it_was_written(status: int, code: str, kind: type[Exception]) -> None:
    body = json.dumps({"error": {"code": code, "message": "why", "more": 1}}).encode() if code else b"<html>"
    error = error_of_answer(status, httpx.Headers({"retry-after": "7"}), body)
    assert type(error) is kind
    assert error.status == status
    assert error.retry_after == 7
    assert error.maybe_written == (kind is OutcomeUnknown)
    if code:
        assert (error.code, error.message, error.data) == (code, "why", {"more": 1})


def test_delays_grow_with_some_chance_in_them_until_it_is_time_to_give_up() -> None:
    now = 0.0
    attempts = Attempts(Patience(first_seconds=1, longest_seconds=4, give_up_seconds=20), lambda: now)
    failure = Retryable("unavailable", "not now")
    for most in (1, 2, 4, 4):
        delay = attempts.delay_after(failure)
        assert most / 2 <= delay <= most
        now += delay
    now = 19.0
    with pytest.raises(Retryable):
        attempts.delay_after(failure)
    attempts.succeeded()
    assert attempts.delay_after(Retryable("unavailable", "not now", retry_after=9)) >= 9.5
