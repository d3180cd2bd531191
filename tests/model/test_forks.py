"""Forks: shared beginnings, offsets inside an append, and sources that outlive their deletion."""

import pytest
from tests.model.driving import SECOND, START, Driver

from ursula.model.commands import Append, Create, Delete, Expire, ForkPoint, Producer
from ursula.model.outcomes import Created, Ended

JSON = "application/json"


@pytest.fixture
def driver() -> Driver:
    """A binary source `s` of two appends, and a JSON source `j` of appends with three and two messages."""
    driver = Driver()
    driver.create("s", b"hello")
    driver.append("s", b" world")
    driver.create("j", b"1", b"22", b"333", content_type=JSON)
    driver.append("j", b"4", b"55", media_type=JSON)
    return driver


def fork(driver: Driver, name: str, source: str, offset: int | None = None, sub_offset: int = 0) -> Created:
    outcome = driver.do(Create("b", name, None, fork=ForkPoint(source, offset, sub_offset)))
    assert isinstance(outcome, Created)
    return outcome


def test_a_fork_shares_what_was_there_and_goes_its_own_way(driver: Driver) -> None:
    outcome = fork(driver, "f", "s", 5)
    assert (outcome.new, outcome.tail, outcome.content_type) == (True, 5, "text/plain")
    assert driver.append("f", b"!").next_offset == 6
    driver.append("s", b"?")
    assert driver.content("f") == b"hello!"
    assert driver.content("s") == b"hello world?"


def test_a_fork_without_an_offset_leaves_at_the_tail(driver: Driver) -> None:
    assert fork(driver, "f", "s").tail == 11
    assert fork(driver, "g", "s", 0).tail == 0
    assert driver.content("g") == b""


def test_a_fork_may_begin_with_messages_of_its_own(driver: Driver) -> None:
    driver.do(Create("b", "f", None, (b"!",), close=True, fork=ForkPoint("s", 5)))
    assert driver.content("f") == b"hello!"
    assert driver.page("f").closed


def test_a_sub_offset_counts_bytes_within_one_append(driver: Driver) -> None:
    assert fork(driver, "f", "s", 0, 3).tail == 3
    assert fork(driver, "g", "s", 0, 5).tail == 5
    assert fork(driver, "h", "s", 5, 2).tail == 7
    assert driver.content("h") == b"hello w"
    assert driver.code(Create("b", "x", None, fork=ForkPoint("s", 0, 6))) == "invalid_offset"
    assert driver.code(Create("b", "x", None, fork=ForkPoint("s", 11, 1))) == "invalid_offset"


def test_a_sub_offset_counts_messages_of_json(driver: Driver) -> None:
    assert fork(driver, "f", "j", 0, 2).tail == 3
    assert driver.page("f").chunks == [b"1", b"22"]
    assert fork(driver, "g", "j", 1, 2).tail == 6
    assert fork(driver, "h", "j", 6, 1).tail == 7
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 0, 4))) == "invalid_offset"
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 2, 1))) == "invalid_offset"
    assert driver.code(Create("b", "x", None, fork=ForkPoint("j", 2))) == "invalid_offset"


def test_the_cut_off_append_at_the_end_of_a_fork_ends_where_the_fork_left(driver: Driver) -> None:
    fork(driver, "f", "s", 0, 3)
    driver.append("f", b"p!")
    assert driver.code(Create("b", "g", None, fork=ForkPoint("f", 0, 4))) == "invalid_offset"
    assert fork(driver, "g", "f", 0, 3).tail == 3
    fork(driver, "k", "j", 0, 2)
    driver.append("k", b"9", media_type=JSON)
    assert driver.code(Create("b", "m", None, fork=ForkPoint("k", 0, 3))) == "invalid_offset"


def test_forks_of_forks_read_through_to_the_first_source(driver: Driver) -> None:
    fork(driver, "f", "s", 7)
    driver.append("f", b"ander")
    fork(driver, "g", "f", 9)
    driver.append("g", b"!!")
    fork(driver, "h", "g", 4)
    driver.append("h", b"o?")
    assert driver.content("g") == b"hello wan!!"
    assert driver.content("h") == b"hello?"
    assert [driver.page("g", offset, 3).chunks for offset in (0, 6, 9)] == [[b"hel"], [b"w", b"an"], [b"!!"]]


def test_a_read_that_keeps_messages_whole_stops_before_one_that_does_not_fit_after_the_fork(
    driver: Driver,
) -> None:
    fork(driver, "f", "s", 5)
    driver.append("f", b"12345")
    driver.append("f", b"6")
    assert driver.page("f", 0, 7, whole=True).chunks == [b"hello"]
    assert driver.page("f", 0, 10, whole=True).chunks == [b"hello", b"12345"]
    fork(driver, "g", "f", 8)
    driver.append("g", b"!")
    assert driver.page("g", 0, 6, whole=True).chunks == [b"hello"]
    assert driver.page("g", 0, 8, whole=True).chunks == [b"hello", b"123"]
    fork(driver, "h", "s", 11)
    driver.append("h", b"!")
    assert driver.page("h", 0, 8, whole=True).chunks == [b"hello"]


def test_records_of_a_fork_go_on_from_its_source(driver: Driver) -> None:
    fork(driver, "f", "j", 3)
    driver.append("f", b"7", b"8", media_type=JSON)
    journal = driver.state.buckets["b"].journal
    assert journal.records.tolist()[-2:] == [2, 3]


def test_what_cannot_be_forked(driver: Driver) -> None:
    assert driver.code(Create("b", "f", None, fork=ForkPoint("nothing"))) == "stream_not_found"
    assert driver.code(Create("b", "f", None, fork=ForkPoint("f"))) == "stream_not_found"
    assert driver.code(Create("b", "f", None, fork=ForkPoint("s", 12))) == "offset_beyond_tail"
    assert driver.code(Create("b", "f", JSON, fork=ForkPoint("s"))) == "content_type_mismatch"
    assert driver.code(Create("b", "j", None, fork=ForkPoint("s"))) == "stream_exists"


def test_a_refused_fork_leaves_no_reference_behind(driver: Driver) -> None:
    refused = Create("b", "f", None, (b"x",), fork=ForkPoint("s"), producer=Producer("p", 0, 4))
    assert driver.code(refused) == "producer_seq_conflict"
    driver.do(Delete("b", "s"))
    assert driver.hidden("s") == "stream_not_found"


def test_a_fork_of_a_closed_stream_is_open_and_knows_no_producer(driver: Driver) -> None:
    closing = Append("b", "s", (b"!",), "text/plain", True, Producer("p", 0, 0), "m")
    driver.do(closing)
    assert not fork(driver, "f", "s").closed
    assert (
        driver.refusal(Append("b", "f", (b"x",), "text/plain", producer=Producer("p", 0, 1))).expected_seq
        == 0
    )
    driver.do(Append("b", "f", (b"x",), "text/plain", stream_seq="a"))
    assert driver.content("f") == b"hello world!x"


def test_repeating_a_fork_is_no_error_wherever_it_once_left(driver: Driver) -> None:
    fork(driver, "f", "s")
    driver.append("s", b"more")
    driver.append("f", b"other")
    assert not fork(driver, "f", "s").new
    assert not fork(driver, "f", "s", 11).new
    assert driver.code(Create("b", "f", None, fork=ForkPoint("s", 15))) == "stream_exists"
    assert driver.code(Create("b", "f", None, fork=ForkPoint("j"))) == "stream_exists"
    assert driver.code(Create("b", "f", "text/plain")) == "stream_exists"
    assert driver.code(Create("b", "s", None, fork=ForkPoint("j"))) == "stream_exists"


def test_repeating_a_fork_compares_offset_and_sub_offset(driver: Driver) -> None:
    fork(driver, "f", "s", 5, 2)
    assert not fork(driver, "f", "s", 5, 2).new
    assert driver.code(Create("b", "f", None, fork=ForkPoint("s", 5, 1))) == "stream_exists"
    assert driver.code(Create("b", "f", None, fork=ForkPoint("s", 6, 2))) == "stream_exists"


def test_a_fork_inherits_the_lifetime_of_its_source_unless_it_is_given_one(driver: Driver) -> None:
    driver.do(Create("b", "t", None, ttl_seconds=10))
    driver.now += SECOND
    assert fork(driver, "f", "t").deadline == START + 11 * SECOND
    assert not fork(driver, "f", "t").new
    given = driver.do(Create("b", "g", None, ttl_seconds=2, fork=ForkPoint("t")))
    assert isinstance(given, Created)
    assert given.deadline == START + 3 * SECOND
    assert driver.code(Create("b", "g", None, fork=ForkPoint("t"))) == "stream_exists"


def test_a_deleted_source_is_out_of_sight_until_its_last_fork_ends(driver: Driver) -> None:
    fork(driver, "f", "s", 5)
    fork(driver, "g", "s")
    driver.do(Delete("b", "s"))
    assert driver.hidden("s") == "stream_gone"
    assert driver.content("g") == b"hello world"
    assert driver.code(Append("b", "s", (b"x",), "text/plain")) == "stream_gone"
    assert driver.code(Delete("b", "s")) == "stream_gone"
    assert driver.code(Create("b", "s", "text/plain")) == "stream_exists"
    assert driver.code(Create("b", "h", None, fork=ForkPoint("s"))) == "stream_exists"
    driver.do(Delete("b", "f"))
    assert driver.hidden("s") == "stream_gone"
    driver.do(Delete("b", "g"))
    assert driver.hidden("s") == "stream_not_found"
    driver.create("s", b"new")
    assert driver.content("s") == b"new"


def test_an_expired_source_is_kept_for_its_forks_too(driver: Driver) -> None:
    created = driver.do(Create("b", "t", None, (b"x",), ttl_seconds=0))
    assert isinstance(created, Created)
    driver.do(Create("b", "f", None, ttl_seconds=60, fork=ForkPoint("t")))
    assert driver.do(Expire("b", "t", created.incarnation, START)) == Ended(created.incarnation)
    assert driver.hidden("t") == "stream_gone"
    source = driver.state.find("b", "t")
    assert source is not None
    assert source.deadline is None
    assert driver.content("f") == b"x"


def test_a_chain_of_deleted_sources_goes_with_its_last_fork(driver: Driver) -> None:
    count = driver.state.stream_count
    fork(driver, "f", "s", 5)
    fork(driver, "g", "f", 3)
    driver.do(Delete("b", "f"))
    driver.do(Delete("b", "s"))
    assert (driver.hidden("s"), driver.hidden("f")) == ("stream_gone", "stream_gone")
    assert driver.content("g") == b"hel"
    driver.do(Delete("b", "g"))
    assert {driver.hidden(name) for name in "sfg"} == {"stream_not_found"}
    assert driver.state.stream_count == count - 1
