"""Record coordinates: every JSON message has an ordinal, whatever is trimmed or forked."""

import pytest
from tests.model.driving import Driver

from ursula.model.commands import Append, Create, Delete, IfMatch, Producer, Version
from ursula.model.outcomes import Appended, Created, RecordPage, Refused

JSON = "application/json"


@pytest.fixture
def driver() -> Driver:
    """A JSON stream `j` of appends with three and two messages, and a binary one."""
    driver = Driver()
    driver.create("j", b"1", b"22", b"333", content_type=JSON)
    driver.append("j", b"4", b"55", media_type=JSON)
    driver.create("s", b"abc")
    return driver


def read(
    driver: Driver,
    record: int | None = None,
    tail_records: int | None = None,
    records_max: int = 100,
    bytes_max: int = 1000,
    name: str = "j",
    offset: int | None = None,
) -> RecordPage:
    page = driver.state.reads.read_records(
        "b", name, record, tail_records, records_max, bytes_max, offset=offset
    )
    assert isinstance(page, RecordPage)
    return page


def refusal(driver: Driver, record: int | None, name: str = "j", offset: int | None = None) -> Refused:
    page = driver.state.reads.read_records("b", name, record, None, 100, 1000, offset=offset)
    assert isinstance(page, Refused)
    return page


def records(driver: Driver, name: str) -> tuple[int | None, int | None]:
    description = driver.described(name)
    return description.first_record, description.next_record


# Outcomes


def test_an_append_tells_the_ordinals_of_its_messages(driver: Driver) -> None:
    outcome = driver.append("j", b"6", b"7", media_type=JSON)
    assert (outcome.record_start, outcome.record_next) == (5, 7)
    assert driver.append("s", b"x").record_next is None


def test_a_creation_tells_the_ordinals_of_its_messages(driver: Driver) -> None:
    new = driver.do(Create("b", "k", JSON, (b"1", b"2")))
    assert isinstance(new, Created)
    assert (new.record_start, new.record_next) == (0, 2)
    again = driver.do(Create("b", "k", JSON, (b"1", b"2")))
    assert isinstance(again, Created)
    assert (again.record_start, again.record_next) == (2, 2)
    assert driver.create("t", b"x").record_next is None


def test_a_retry_is_told_the_ordinals_it_once_got(driver: Driver) -> None:
    request = Append("b", "j", (b"6", b"7"), JSON, producer=Producer("p", 0, 0))
    driver.do(request)
    driver.append("j", b"8", media_type=JSON)
    again = driver.do(request)
    assert isinstance(again, Appended)
    assert (again.duplicate, again.record_start, again.record_next) == (True, 5, 7)
    driver.do(Append("b", "j", (b"9",), JSON, producer=Producer("p", 0, 1)))
    older = driver.do(request)
    assert isinstance(older, Appended)
    assert (older.duplicate, older.record_start, older.record_next) == (True, None, None)


def test_a_retry_of_what_was_trimmed_since_is_told_no_ordinals(driver: Driver) -> None:
    request = Append("b", "j", (b"6", b"7"), JSON, producer=Producer("p", 0, 0))
    driver.do(request)
    driver.publish("j", 10)
    again = driver.do(request)
    assert isinstance(again, Appended)
    assert (again.record_start, again.record_next) == (5, 7)
    driver.append("j", b"8", media_type=JSON)
    driver.publish("j", 11, "second")
    again = driver.do(request)
    assert isinstance(again, Appended)
    assert (again.record_start, again.record_next) == (5, 7)
    driver.publish("j", 12, "third")
    again = driver.do(request)
    assert isinstance(again, Appended)
    assert (again.next_offset, again.record_start, again.record_next) == (11, None, None)


def test_a_retry_of_the_request_that_closed_is_told_its_ordinals(driver: Driver) -> None:
    request = Append("b", "j", (b"6",), JSON, close=True, producer=Producer("p", 0, 0))
    first, again = driver.do(request), driver.do(request)
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert (again.duplicate, again.record_start, again.record_next) == (True, 5, 6)
    assert (first.record_start, first.record_next) == (5, 6)


def test_closing_tells_the_next_ordinal_each_time(driver: Driver) -> None:
    for _ in range(2):
        outcome = driver.do(Append("b", "j", (), None, close=True))
        assert isinstance(outcome, Appended)
        assert (outcome.record_start, outcome.record_next) == (5, 5)


# Stream-Record-Match


def test_a_record_match_must_name_the_next_ordinal(driver: Driver) -> None:
    for wrong in (0, 4, 6):
        assert driver.code(Append("b", "j", (b"6",), JSON, record_match=wrong)) == "precondition_failed"
    assert isinstance(driver.do(Append("b", "j", (b"6",), JSON, record_match=5)), Appended)
    assert driver.code(Append("b", "j", (b"6",), JSON, record_match=5)) == "precondition_failed"


def test_a_binary_stream_matches_no_record(driver: Driver) -> None:
    for named in (0, 1):
        command = Append("b", "s", (b"x",), "text/plain", record_match=named)
        assert driver.code(command) == "precondition_failed"


def test_a_record_match_counts_after_the_content_type_and_a_retry_and_before_other_checks(
    driver: Driver,
) -> None:
    driver.do(Append("b", "j", (b"6",), JSON, producer=Producer("p", 1, 0), stream_seq="m"))
    retried = Append("b", "j", (b"6",), JSON, producer=Producer("p", 1, 0), record_match=0)
    again = driver.do(retried)
    assert isinstance(again, Appended)
    assert again.duplicate
    gap = Append("b", "j", (b"6",), JSON, producer=Producer("p", 1, 9), stream_seq="a", record_match=0)
    assert driver.code(gap) == "precondition_failed"
    assert driver.code(Append("b", "j", (b"6",), "text/html", record_match=0)) == "content_type_mismatch"
    assert driver.code(Append("b", "j", (b"6",), JSON, stream_seq="a", record_match=0)) == (
        "precondition_failed"
    )
    assert driver.code(Append("b", "j", (b"6",), JSON, stream_seq="a", record_match=6)) == (
        "stream_seq_conflict"
    )


def test_a_record_match_and_an_if_match_must_both_hold(driver: Driver) -> None:
    now = IfMatch((Version(driver.described("j").incarnation, 9, False),))
    never = IfMatch(())
    assert driver.code(Append("b", "j", (b"6",), JSON, if_match=now, record_match=4)) == (
        "precondition_failed"
    )
    assert driver.code(Append("b", "j", (b"6",), JSON, if_match=never, record_match=5)) == (
        "precondition_failed"
    )
    assert isinstance(driver.do(Append("b", "j", (b"6",), JSON, if_match=now, record_match=5)), Appended)


def test_a_closed_stream_is_closed_whatever_a_record_match_says(driver: Driver) -> None:
    driver.do(Append("b", "j", (), None, close=True))
    assert driver.code(Append("b", "j", (b"6",), JSON, record_match=0)) == "stream_closed"


# Ordinals across trims and forks


def test_ordinals_are_never_used_again(driver: Driver) -> None:
    assert records(driver, "j") == (0, 5)
    driver.publish("j", 3)
    assert records(driver, "j") == (2, 5)
    driver.publish("j", 9)
    assert records(driver, "j") == (5, 5)
    assert driver.append("j", b"6", media_type=JSON).record_start == 5
    assert records(driver, "j") == (5, 6)
    assert records(driver, "s") == (None, None)


def test_a_fork_continues_from_the_ordinals_of_its_source(driver: Driver) -> None:
    driver.publish("j", 1)
    fork = driver.fork("f", "j", 6)
    assert (fork.record_start, fork.record_next) == (3, 3)
    assert records(driver, "f") == (1, 3)
    assert driver.append("f", b"777", b"8", media_type=JSON).record_next == 5
    driver.publish("f", 9)
    assert records(driver, "f") == (4, 5)
    assert (read(driver, 4, name="f").offset, read(driver, 4, name="f").chunks) == (9, [b"8"])
    driver.fork("g", "f", 9)
    assert records(driver, "g") == (4, 4)
    assert records(driver, "j") == (1, 5)


def test_a_source_counts_on_when_the_last_fork_lets_go_of_what_was_trimmed(driver: Driver) -> None:
    driver.fork("f", "j", 3)
    driver.publish("j", 6)
    assert records(driver, "j") == (3, 5)
    driver.do(Delete("b", "f"))
    assert records(driver, "j") == (3, 5)
    assert read(driver, 3).chunks == [b"4", b"55"]
    assert driver.append("j", b"6", media_type=JSON).record_start == 5


# Reading


def test_a_read_begins_at_the_record_asked_for(driver: Driver) -> None:
    page = read(driver, 1)
    assert page.chunks == [b"22", b"333", b"4", b"55"]
    assert (page.record, page.offset, page.next_offset) == (1, 1, 9)
    assert (page.first_record, page.next_record, page.tail) == (0, 5, 9)


def test_a_read_ends_after_so_many_records_or_bytes(driver: Driver) -> None:
    assert read(driver, 1, records_max=2).chunks == [b"22", b"333"]
    assert read(driver, 1, records_max=2).next_offset == 6
    assert read(driver, 0, bytes_max=5).chunks == [b"1", b"22"]
    assert read(driver, 2, bytes_max=1).chunks == [b"333"]
    assert read(driver, 0, records_max=1, bytes_max=1).chunks == [b"1"]
    assert read(driver, 4, records_max=9).chunks == [b"55"]


def test_the_last_records_are_counted_from_the_tail(driver: Driver) -> None:
    assert read(driver, tail_records=2).chunks == [b"4", b"55"]
    assert read(driver, tail_records=2).record == 3
    assert read(driver, tail_records=5).record == 0
    assert read(driver, tail_records=99).record == 0
    assert read(driver, tail_records=3, records_max=1).chunks == [b"333"]


def test_now_is_after_the_last_record(driver: Driver) -> None:
    for page in (read(driver), read(driver, tail_records=0), read(driver, 5)):
        assert (page.chunks, page.record, page.offset, page.next_offset) == ([], 5, 9, 9)


def test_beyond_the_next_record_there_is_nothing(driver: Driver) -> None:
    assert refusal(driver, 6).code == "record_beyond_next"
    driver.create("empty", content_type=JSON)
    assert read(driver, 0, name="empty").chunks == []
    assert refusal(driver, 1, "empty").code == "record_beyond_next"


def test_below_the_first_record_there_is_nothing_any_more(driver: Driver) -> None:
    driver.publish("j", 3)
    for record in (0, 1):
        refused = refusal(driver, record)
        assert (refused.code, refused.earliest) == ("record_trimmed", 3)
    assert read(driver, 2).chunks == [b"333", b"4", b"55"]
    assert read(driver, tail_records=99).record == 2


def test_only_json_has_records(driver: Driver) -> None:
    assert refusal(driver, 0, "s").code == "invalid_parameter"
    assert refusal(driver, 0, "nothing").code == "stream_not_found"
    other = driver.state.reads.read_records("b", "j", 0, None, 1, 1, "9-9-9")
    assert isinstance(other, Refused)
    assert other.code == "incarnation_mismatch"


def test_records_are_read_through_forks(driver: Driver) -> None:
    driver.fork("f", "j", 6)
    driver.append("f", b"F", b"FF", media_type=JSON)
    driver.fork("g", "f", 7)
    driver.append("g", b"GGG", media_type=JSON)
    assert read(driver, 0, name="g").chunks == [b"1", b"22", b"333", b"F", b"GGG"]
    assert read(driver, 2, name="g", records_max=2).chunks == [b"333", b"F"]
    assert read(driver, 3, name="g", records_max=1).chunks == [b"F"]
    assert read(driver, 4, name="g").chunks == [b"GGG"]
    assert read(driver, 2, name="g", bytes_max=4).chunks == [b"333", b"F"]
    assert read(driver, 2, name="g", bytes_max=6).chunks == [b"333", b"F"]
    assert [read(driver, n, name="g").offset for n in range(6)] == [0, 1, 3, 6, 7, 10]


def test_a_read_of_records_may_go_on_from_an_offset(driver: Driver) -> None:
    driver.publish("j", 1)
    assert (read(driver, offset=3).record, read(driver, offset=3).chunks[0]) == (2, b"333")
    assert read(driver, offset=9).record == 5
    assert (refusal(driver, None, offset=0).code, refusal(driver, None, offset=0).earliest) == (
        "offset_trimmed",
        1,
    )
    assert refusal(driver, None, offset=2).code == "invalid_offset"
    assert refusal(driver, None, offset=10).code == "offset_beyond_tail"
