"""Idempotent producers: each request is stored once, however often it is sent."""

import pytest
from tests.model.driving import Driver

from ursula.model.commands import Append, Create, Delete, Producer
from ursula.model.outcomes import Appended, Created


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("s")
    return driver


def request(epoch: int, seq: int, body: bytes = b"x", close: bool = False, producer: str = "p") -> Append:
    messages = (body,) if body else ()
    return Append("b", "s", messages, "text/plain", close, Producer(producer, epoch, seq))


def accepted(driver: Driver, command: Append) -> Appended:
    outcome = driver.do(command)
    assert isinstance(outcome, Appended)
    return outcome


def test_a_retried_append_is_stored_once(driver: Driver) -> None:
    first = accepted(driver, request(0, 0, b"one"))
    accepted(driver, request(0, 0, b"other", producer="q"))
    again = accepted(driver, request(0, 0, b"one"))
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.next_offset, again.epoch, again.seq) == (first.next_offset, 0, 0)
    assert driver.content("s") == b"oneother"


def test_an_older_duplicate_is_told_the_tail_and_the_highest_seq(driver: Driver) -> None:
    for seq in range(3):
        accepted(driver, request(0, seq))
    old = accepted(driver, request(0, 1))
    assert (old.duplicate, old.next_offset, old.seq) == (True, 3, 2)


def test_an_unknown_producer_begins_with_seq_0_in_any_epoch(driver: Driver) -> None:
    refusal = driver.refusal(request(4, 1))
    assert (refusal.code, refusal.expected_seq, refusal.received_seq) == ("producer_seq_conflict", 0, 1)
    assert accepted(driver, request(4, 0)).epoch == 4


def test_a_gap_is_refused_with_both_numbers(driver: Driver) -> None:
    accepted(driver, request(0, 0))
    refusal = driver.refusal(request(0, 2))
    assert (refusal.code, refusal.expected_seq, refusal.received_seq) == ("producer_seq_conflict", 1, 2)
    assert not accepted(driver, request(0, 1)).duplicate


def test_a_new_epoch_fences_the_old_one(driver: Driver) -> None:
    accepted(driver, request(0, 0))
    assert driver.code(request(1, 1)) == "producer_headers_invalid"
    assert not accepted(driver, request(1, 0)).duplicate
    refusal = driver.refusal(request(0, 1))
    assert (refusal.code, refusal.epoch) == ("producer_epoch_stale", 1)
    assert driver.code(request(0, 0)) == "producer_epoch_stale"


def test_the_request_that_closed_may_be_retried_and_no_other(driver: Driver) -> None:
    accepted(driver, request(0, 0))
    accepted(driver, request(0, 1, b"end", close=True))
    again = accepted(driver, request(0, 1, b"end", close=True))
    assert (again.duplicate, again.closed, again.next_offset, again.seq) == (True, True, 4, 1)
    assert driver.code(request(0, 0)) == "stream_closed"
    assert driver.code(request(0, 2)) == "stream_closed"
    assert driver.code(request(0, 2, b"", close=True)) == "stream_closed"
    assert driver.code(request(1, 1, b"end", close=True)) == "stream_closed"
    assert driver.code(request(0, 1, b"end", close=True, producer="q")) == "stream_closed"
    assert driver.content("s") == b"xend"


def test_a_stale_epoch_on_a_closed_stream_learns_that_it_is_closed(driver: Driver) -> None:
    accepted(driver, request(1, 0, close=True))
    refusal = driver.refusal(request(0, 0))
    assert (refusal.code, refusal.closed) == ("stream_closed", True)


def test_closing_without_a_body_uses_up_a_seq(driver: Driver) -> None:
    accepted(driver, request(0, 0))
    refusal = driver.refusal(request(0, 2, b"", close=True))
    assert refusal.code == "producer_seq_conflict"
    closing = accepted(driver, request(0, 1, b"", close=True))
    assert (closing.closed, closing.seq, closing.next_offset) == (True, 1, 1)
    assert accepted(driver, request(0, 1, b"", close=True)).duplicate


def test_the_first_body_of_a_stream_counts_as_its_producers_first_request() -> None:
    driver = Driver()
    wrong = Create("b", "s", "text/plain", (b"a",), make_bucket=True, producer=Producer("p", 0, 3))
    assert driver.code(wrong) == "producer_seq_conflict"
    assert driver.state.buckets == {}
    right = Create("b", "s", "text/plain", (b"a",), make_bucket=True, producer=Producer("p", 0, 0))
    assert isinstance(driver.do(right), Created)
    assert accepted(driver, request(0, 0, b"a")).duplicate
    assert not accepted(driver, request(0, 1, b"b")).duplicate
    assert driver.content("s") == b"ab"


def test_a_creation_without_a_body_is_no_request_of_a_producer() -> None:
    driver = Driver()
    driver.do(Create("b", "s", "text/plain", (), True, make_bucket=True, producer=Producer("p", 0, 9)))
    assert driver.code(request(0, 9, b"", close=True)) == "stream_closed"


def test_producers_end_with_their_stream(driver: Driver) -> None:
    accepted(driver, request(0, 0))
    driver.do(Delete("b", "s"))
    driver.create("s")
    assert driver.refusal(request(0, 1)).expected_seq == 0
