"""Append batches: several appends in one command, taken whole, and kept apart."""

import pytest
from tests.model.driving import Driver
from tests.model.rows import rows_of

from ursula.model.commands import Append, Create, ForkPoint, Producer
from ursula.model.outcomes import Appended
from ursula.model.stream.messages import Messages

JSON = "application/json"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create("s")
    driver.create("j", content_type=JSON)
    return driver


def appended(driver: Driver, command: Append) -> Appended:
    outcome = driver.do(command)
    assert isinstance(outcome, Appended)
    return outcome


def json_batch(producer: Producer | None = None) -> Append:
    """Three appends: of two messages, of one, and of three."""
    messages = (b"1", b"2", b"3", b"4", b"5", b"6")
    return Append("b", "j", messages, JSON, producer=producer, counts=(2, 1, 3))


def test_the_appends_of_a_batch_follow_each_other(driver: Driver) -> None:
    outcome = appended(driver, Append("b", "s", (b"ab", b"c", b"def"), "text/plain", counts=(1, 1, 1)))
    assert (outcome.next_offset, outcome.tail) == (6, 6)
    assert driver.page("s").chunks == [b"ab", b"c", b"def"]


def test_each_append_of_a_batch_is_one_for_sub_offsets(driver: Driver) -> None:
    appended(driver, json_batch())
    assert driver.fork("f", "j", 0, 2).tail == 2
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 0, 3))) == "invalid_offset"
    assert driver.fork("g", "j", 2, 1).tail == 3
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 2, 2))) == "invalid_offset"
    assert driver.fork("h", "j", 3, 3).tail == 6


def test_without_counts_all_messages_are_one_append(driver: Driver) -> None:
    driver.append("j", b"1", b"2", b"3", media_type=JSON)
    assert driver.fork("f", "j", 0, 3).tail == 3


def test_a_batch_is_one_command_in_the_journal(driver: Driver) -> None:
    appended(driver, json_batch(Producer("p", 0, 0)))
    rows = rows_of(driver.state.buckets["b"].journal)[-6:]
    assert [(row.kind, row.offset, row.record) for row in rows] == [("append", n, n) for n in range(6)]
    assert {(row.position, row.index, row.producer) for row in rows} == {(3, 0, ("p", 0, 0))}


def test_a_batch_of_a_producer_is_one_request(driver: Driver) -> None:
    first = appended(driver, json_batch(Producer("p", 0, 0)))
    again = appended(driver, json_batch(Producer("p", 0, 0)))
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.next_offset, again.seq) == (first.next_offset, 0)
    assert (again.record_start, again.record_next) == (first.record_start, first.record_next) == (0, 6)
    assert driver.content("j") == b"123456"
    assert driver.code(json_batch(Producer("p", 0, 2))) == "producer_seq_conflict"
    assert driver.content("j") == b"123456"
    assert not appended(driver, json_batch(Producer("p", 0, 1))).duplicate


def test_a_batch_is_refused_whole(driver: Driver) -> None:
    assert driver.code(Append("b", "s", (b"a", b"b"), "text/html", counts=(1, 1))) == "content_type_mismatch"
    driver.do(Append("b", "s", (), None, close=True))
    assert driver.code(Append("b", "s", (b"a", b"b"), "text/plain", counts=(1, 1))) == "stream_closed"
    assert driver.content("s") == b""


def test_messages_of_a_batch_know_their_appends() -> None:
    messages = Messages(10)
    assert messages.add_batch((b"a", b"bb", b"c", b"d"), (1, 2, 1)) == 15
    assert [messages.append_end_after(offset) for offset in range(10, 16)] == [11, 14, 14, 14, 15, 15]
    assert messages.add_batch((b"e",), (1,)) == 16
    assert messages.append_end_after(15) == 16


def test_dropping_messages_keeps_the_ends_of_what_is_left() -> None:
    messages = Messages(10)
    messages.add_batch((b"a", b"bb", b"c", b"d"), (1, 2, 1))
    assert messages.drop_before(13) == 2
    assert (messages.start, messages.payloads, messages.ends.tolist()) == (13, [b"c", b"d"], [14, 15])
    assert [messages.append_end_after(offset) for offset in (13, 14, 15)] == [14, 15, 15]
    assert messages.drop_before(13) == 0
    assert messages.drop_before(15) == 2
    assert (messages.start, messages.end, messages.payloads) == (15, 15, [])
    assert messages.drop_before(15) == 0
    assert messages.add((b"e",)) == 16
    assert messages.add((b"f", b"g")) == 18
    assert [messages.append_end_after(offset) for offset in (15, 16, 17, 18)] == [16, 18, 18, 18]
