"""The hot journal of a bucket: a row for everything that happened in it, in order."""

from tests.model.driving import START, Driver
from tests.model.oracle import Row
from tests.model.rows import rows_of

from ursula.model.commands import Append, Create, CreateBucket, Delete, Expire, ForkPoint, Producer, Renew
from ursula.model.outcomes import Created

JSON = "application/json"


def rows(driver: Driver, bucket: str = "b") -> list[Row]:
    return rows_of(driver.state.buckets[bucket].journal)


def test_an_append_of_three_json_values_is_three_rows() -> None:
    driver = Driver()
    incarnation = driver.create("j", b"0", content_type=JSON).incarnation
    driver.send(
        Append("b", "nothing", (b"x",), JSON),
        Append("b", "j", (b"1", b"22", b"333"), JSON, producer=Producer("p", 4, 0)),
    )
    made, first, *three = rows(driver)
    assert made == Row(1, START, 0, "create", "j", incarnation, 0, 0, None, None, None)
    assert first == Row(1, START, 0, "append", "j", incarnation, 0, 1, 0, b"0", None)
    producer = ("p", 4, 0)
    assert three == [
        Row(2, START, 1, "append", "j", incarnation, 1, 2, 1, b"1", producer),
        Row(2, START, 1, "append", "j", incarnation, 2, 4, 2, b"22", producer),
        Row(2, START, 1, "append", "j", incarnation, 4, 7, 3, b"333", producer),
    ]


def test_rows_of_one_command_come_in_the_order_create_append_close() -> None:
    driver = Driver()
    driver.send(
        CreateBucket("b"),
        Create("b", "s", None, (b"abc",), close=True),
        Create("b", "f", None, (b"!",), close=True, fork=ForkPoint("s", 2)),
        Append("b", "s", (b"refused",), None),
    )
    assert [(row.index, row.kind, row.offset, row.next_offset) for row in rows(driver)] == [
        (1, "create", 0, 0),
        (1, "append", 0, 3),
        (1, "close", 3, 3),
        (2, "fork", 2, 2),
        (2, "append", 2, 3),
        (2, "close", 3, 3),
    ]
    assert {row.position for row in rows(driver)} == {1}


def test_binary_messages_have_no_record() -> None:
    driver = Driver()
    driver.create("s", b"x")
    assert {row.record for row in rows(driver)} == {None}


def test_endings_are_told_and_stay_told() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    made = driver.do(Create("b", "s", None, ttl_seconds=0))
    assert isinstance(made, Created)
    driver.now += 5
    driver.do(Expire("b", "s", made.incarnation, START))
    told = [(row.position, row.at, row.kind, row.incarnation, row.offset) for row in rows(driver)]
    assert told == [
        (1, START, "create", "3-1-0", 0),
        (1, START, "append", "3-1-0", 0),
        (2, START, "delete", "3-1-0", 3),
        (3, START, "create", "3-3-0", 0),
        (4, START + 5, "expire", "3-3-0", 0),
    ]


def test_what_changes_no_stream_leaves_no_row() -> None:
    driver = Driver()
    made = driver.do(Create("b", "s", "text/plain", ttl_seconds=10, make_bucket=True))
    assert isinstance(made, Created)
    before = rows(driver)
    driver.send(
        CreateBucket("b"),
        Create("b", "s", "text/plain", (b"x",), ttl_seconds=10),
        Append("b", "s", (b"x",), "text/html"),
        Renew("b", "s", made.incarnation, START + 5),
        Expire("b", "s", made.incarnation, 7),
        Delete("b", "t"),
    )
    assert rows(driver) == before


def test_buckets_have_journals_of_their_own_that_count_their_bytes() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Create("c", "s", None, (b"de",), make_bucket=True))
    driver.append("s", b"f")
    assert [row.payload for row in rows(driver)] == [None, b"abc", b"f"]
    assert [row.position for row in rows(driver, "c")] == [2, 2]
    assert driver.state.buckets["b"].journal.byte_count == 4
    assert driver.state.buckets["c"].journal.byte_count == 2


def test_messages_are_not_copied_into_the_journal() -> None:
    driver = Driver()
    body = b"x" * 1000
    driver.create("s", body)
    assert driver.state.buckets["b"].journal.payloads[1] is body
    assert driver.page("s").chunks[0] is body
