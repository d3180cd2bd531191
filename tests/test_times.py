"""RFC 3339 times and microseconds since 1970."""

import pytest

from ursula.times import NotRfc3339, format_time, parse_time

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", SECOND),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.5Z", SECOND // 2),
        ("1970-01-01T00:00:00.1234569Z", 123_456),
        ("1969-12-31T23:59:59Z", -SECOND),
    ],
)
def test_a_time_is_parsed_in_any_zone_and_case(text: str, microseconds: int) -> None:
    assert parse_time(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1970-01-01",
        "1970-01-01 00:00:00Z",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00+0100",
        "١٩٧٠-01-01T00:00:00Z",
    ],
)
def test_text_of_another_form_is_not_a_time(text: str) -> None:
    with pytest.raises(NotRfc3339):
        parse_time(text)


@pytest.mark.parametrize(
    "text",
    [
        "1970-02-30T00:00:00Z",
        "1970-01-01T24:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_a_moment_that_does_not_exist_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|must be in") as caught:
        parse_time(text)
    assert not isinstance(caught.value, NotRfc3339)


def test_a_fraction_is_shown_if_there_is_one_or_if_it_is_asked_for() -> None:
    assert format_time(0) == "1970-01-01T00:00:00Z"
    assert format_time(1) == "1970-01-01T00:00:00.000001Z"
    assert format_time(0, "microseconds") == "1970-01-01T00:00:00.000000Z"
    assert format_time(1_500, "milliseconds") == "1970-01-01T00:00:00.001Z"
    assert parse_time(format_time(-1)) == -1
