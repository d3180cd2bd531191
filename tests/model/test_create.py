"""Creating a stream, creating it again, deleting it, and the lifetime that it was given."""

import pytest
from tests.model.driving import SECOND, START, Driver

from ursula.model.commands import Append, Create, CreateBucket, Delete, Expire, IfMatch, Renew, Version
from ursula.model.outcomes import Created, Ended, Ignored, Renewed


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.do(CreateBucket("b"))
    return driver


def created(driver: Driver, command: Create) -> Created:
    outcome = driver.do(command)
    assert isinstance(outcome, Created)
    return outcome


def deadline(driver: Driver, name: str = "s") -> int | None:
    stream = driver.state.find("b", name)
    assert stream is not None
    return stream.deadline


def test_a_stream_is_octets_unless_it_is_said_otherwise(driver: Driver) -> None:
    outcome = created(driver, Create("b", "s", None))
    assert (outcome.new, outcome.content_type, outcome.tail) == (True, "application/octet-stream", 0)


def test_a_stream_may_begin_with_messages_and_end_at_once(driver: Driver) -> None:
    outcome = created(driver, Create("b", "s", "application/json", (b"1", b"2"), close=True))
    assert (outcome.tail, outcome.closed) == (2, True)
    assert driver.page("s").chunks == [b"1", b"2"]
    assert driver.code(Append("b", "s", (b"3",), "application/json")) == "stream_closed"


def test_creating_again_changes_nothing_and_ignores_the_body(driver: Driver) -> None:
    first = created(driver, Create("b", "s", "text/plain; charset=utf-8", (b"one",), ttl_seconds=9))
    again = created(driver, Create("b", "s", "TEXT/plain", (b"two",), ttl_seconds=9))
    assert (again.new, again.incarnation, again.tail) == (False, first.incarnation, 3)
    assert again.content_type == "text/plain; charset=utf-8"
    assert driver.content("s") == b"one"


@pytest.mark.parametrize(
    "other",
    [
        Create("b", "s", "text/html", ttl_seconds=9),
        Create("b", "s", None, ttl_seconds=9),
        Create("b", "s", "text/plain"),
        Create("b", "s", "text/plain", ttl_seconds=8),
        Create("b", "s", "text/plain", expires_at=START + 9 * SECOND),
        Create("b", "s", "text/plain", ttl_seconds=9, close=True),
    ],
)
def test_creating_it_differently_is_refused(driver: Driver, other: Create) -> None:
    created(driver, Create("b", "s", "text/plain", ttl_seconds=9))
    assert driver.code(other) == "stream_exists"


def test_a_stream_that_was_closed_is_no_longer_the_open_one_asked_for(driver: Driver) -> None:
    created(driver, Create("b", "s", "text/plain"))
    driver.do(Append("b", "s", (), None, close=True))
    assert driver.code(Create("b", "s", "text/plain")) == "stream_exists"
    assert not created(driver, Create("b", "s", "text/plain", close=True)).new


def test_if_match_on_a_creation_needs_the_stream_to_be_there(driver: Driver) -> None:
    any_version = IfMatch((), any_version=True)
    assert driver.code(Create("b", "s", None, if_match=any_version)) == "precondition_failed"
    incarnation = created(driver, Create("b", "s", None)).incarnation
    wrong = IfMatch((Version(incarnation, 5, False),))
    assert driver.code(Create("b", "s", "text/html", if_match=wrong)) == "precondition_failed"
    assert driver.code(Create("b", "s", "text/html", if_match=any_version)) == "stream_exists"
    assert not created(driver, Create("b", "s", None, if_match=any_version)).new


def test_a_body_that_is_no_json_creates_nothing(driver: Driver) -> None:
    foreseen = driver.state.look(Create("b", "s", "application/json"), "not JSON")
    assert foreseen is not None
    assert getattr(foreseen, "code", None) == "invalid_json"
    created(driver, Create("b", "s", "application/json"))
    repeated = driver.state.look(Create("b", "s", "application/json"), "not JSON")
    assert isinstance(repeated, Created)
    assert not repeated.new


def test_an_incarnation_says_where_in_the_log_the_stream_began(driver: Driver) -> None:
    driver.state.begin(40, driver.now)
    driver.state.apply(CreateBucket("b"), 0)
    outcome = driver.state.apply(Create("b", "s", None), 2)
    assert isinstance(outcome, Created)
    assert outcome.incarnation == "3-40-2"


def test_a_deleted_stream_is_gone_and_its_name_is_free(driver: Driver) -> None:
    first = created(driver, Create("b", "s", None, (b"x",)))
    assert driver.code(Delete("b", "s", "9-9-9")) == "incarnation_mismatch"
    assert driver.do(Delete("b", "s", first.incarnation)) == Ended(first.incarnation)
    assert driver.hidden("s") == "stream_not_found"
    assert driver.code(Delete("b", "s")) == "stream_not_found"
    second = created(driver, Create("b", "s", "text/plain"))
    assert (second.new, second.tail) == (True, 0)
    assert second.incarnation != first.incarnation


def test_a_window_slides_with_every_write_and_never_back(driver: Driver) -> None:
    outcome = created(driver, Create("b", "s", "text/plain", ttl_seconds=10))
    assert outcome.deadline == START + 10 * SECOND
    driver.now += 4 * SECOND
    driver.append("s", b"x")
    assert deadline(driver) == START + 14 * SECOND
    driver.now -= 3 * SECOND
    driver.append("s", b"x")
    assert deadline(driver) == START + 14 * SECOND
    driver.now += 8 * SECOND
    driver.do(Append("b", "s", (), None, close=True))
    assert deadline(driver) == START + 19 * SECOND


def test_a_fixed_end_does_not_move(driver: Driver) -> None:
    created(driver, Create("b", "s", "text/plain", expires_at=START + 10 * SECOND))
    driver.now += 4 * SECOND
    incarnation = driver.append("s", b"x").incarnation
    assert driver.do(Renew("b", "s", incarnation, driver.now)) == Ignored()
    assert deadline(driver) == START + 10 * SECOND


def test_a_window_of_nothing_and_a_past_end_are_over_at_once(driver: Driver) -> None:
    assert created(driver, Create("b", "s", None, ttl_seconds=0)).deadline == START
    assert created(driver, Create("b", "t", None, expires_at=-5)).deadline == -5
    assert isinstance(driver.do(Expire("b", "t", "3-3-0", -5)), Ended)


def test_a_read_that_is_logged_moves_the_window(driver: Driver) -> None:
    incarnation = created(driver, Create("b", "s", None, ttl_seconds=10)).incarnation
    assert driver.do(Renew("b", "s", incarnation, START + SECOND)) == Renewed(START + 11 * SECOND)
    assert driver.do(Renew("b", "s", incarnation, START)) == Renewed(START + 11 * SECOND)
    assert driver.do(Renew("b", "s", "9-9-9", START + 5 * SECOND)) == Ignored()
    assert driver.do(Renew("b", "t", incarnation, START + 5 * SECOND)) == Ignored()
    assert deadline(driver) == START + 11 * SECOND


def test_an_expiry_counts_only_for_the_deadline_and_the_stream_it_was_meant_for(driver: Driver) -> None:
    incarnation = created(driver, Create("b", "s", "text/plain", ttl_seconds=10)).incarnation
    first_deadline = START + 10 * SECOND
    driver.now += SECOND
    driver.append("s", b"x")
    assert driver.do(Expire("b", "s", incarnation, first_deadline)) == Ignored()
    assert driver.do(Expire("b", "s", "9-9-9", first_deadline + SECOND)) == Ignored()
    assert driver.hidden("s") is None
    assert driver.do(Expire("b", "s", incarnation, first_deadline + SECOND)) == Ended(incarnation)
    assert driver.hidden("s") == "stream_not_found"
    assert driver.do(Expire("b", "s", incarnation, first_deadline + SECOND)) == Ignored()


def test_the_last_write_is_the_last_message(driver: Driver) -> None:
    created(driver, Create("b", "s", "text/plain"))
    driver.now += SECOND
    driver.append("s", b"x")
    driver.now += SECOND
    driver.do(Append("b", "s", (), None, close=True))
    stream = driver.state.find("b", "s")
    assert stream is not None
    assert (stream.created_at, stream.last_write_at) == (START, START + SECOND)


def test_time_never_runs_backwards(driver: Driver) -> None:
    driver.state.begin(50, START + 5)
    driver.state.begin(51, START - 5)
    assert driver.state.at == START + 5
    driver.state.apply(Create("b", "s", None), 0)
    stream = driver.state.find("b", "s")
    assert stream is not None
    assert stream.created_at == START + 5
