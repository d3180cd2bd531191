"""The feed of a bucket: all that happened in it after a position, in whole log entries, each once."""

import pytest
from tests.model.driving import START, Driver

from ursula.model.commands import (
    AnyCommand,
    Append,
    Create,
    CreateBucket,
    Delete,
    Expire,
    ForkPoint,
    Producer,
    SetAttributes,
)
from ursula.model.outcomes import Created, FeedPage, FeedRow, Refused
from ursula.model.read.feed import ROW_BYTES, ROWS_MAX

JSON = "application/json"


@pytest.fixture
def driver() -> Driver:
    """A bucket made at 10, a stream at 20, and appends at 30 (two of them), 40 and 50."""
    driver = Driver()
    commands: dict[int, list[AnyCommand]] = {
        10: [CreateBucket("b")],
        20: [Create("b", "s", "text/plain")],
        30: [Append("b", "s", (b"one",), "text/plain"), Append("b", "s", (b"two",), "text/plain")],
        40: [Append("b", "s", (b"three",), "text/plain")],
        50: [Append("b", "s", (b"four",), "text/plain")],
    }
    for position, batch in commands.items():
        driver.state.begin(position, START + position)
        for index, command in enumerate(batch):
            driver.state.apply(command, index)
    return driver


def feed(
    driver: Driver, after: int | None = None, until: int | None = None, bytes_max: int = 100_000
) -> FeedPage:
    page = driver.state.reads.read_feed("b", after, until, bytes_max)
    assert isinstance(page, FeedPage)
    return page


def positions(page: FeedPage) -> list[int]:
    return [entry.position for entry in page.entries]


def rows(page: FeedPage) -> list[FeedRow]:
    return [row for entry in page.entries for row in entry.rows]


def code(driver: Driver, after: int | None, until: int | None = None) -> str:
    refusal = driver.state.reads.read_feed("b", after, until, 100)
    assert isinstance(refusal, Refused)
    return refusal.code


def test_the_beginning_is_the_first_row_of_the_bucket(driver: Driver) -> None:
    page = feed(driver)
    assert positions(page) == [20, 30, 40, 50]
    assert [entry.at for entry in page.entries] == [START + n for n in (20, 30, 40, 50)]
    assert [row.payload for row in rows(page)] == [None, b"one", b"two", b"three", b"four"]
    assert [row.index for row in rows(page)] == [0, 0, 1, 0, 0]
    assert (page.next_position, page.tail) == (50, 50)


def test_a_position_is_exclusive_and_until_inclusive(driver: Driver) -> None:
    assert positions(feed(driver, 20)) == [30, 40, 50]
    assert positions(feed(driver, 29)) == [30, 40, 50]
    assert positions(feed(driver, 20, 40)) == [30, 40]
    assert positions(feed(driver, 20, 39)) == [30]
    assert positions(feed(driver, None, 20)) == [20]
    assert positions(feed(driver, 50)) == []


def test_a_page_that_was_bounded_continues_after_its_bound(driver: Driver) -> None:
    page = feed(driver, 20, 45)
    assert (page.next_position, page.tail) == (45, 50)
    assert positions(feed(driver, page.next_position)) == [50]
    page = feed(driver, 40, 30)
    assert (page.entries, page.next_position) == ([], 40)


def test_a_page_ends_between_entries_once_it_is_full(driver: Driver) -> None:
    entry_bytes = ROW_BYTES * 2 + len(b"onetwo")
    for bytes_max in (1, ROW_BYTES, entry_bytes):
        page = feed(driver, 20, bytes_max=bytes_max)
        assert (positions(page), page.next_position, page.tail) == ([30], 30, 50)
    page = feed(driver, 20, bytes_max=entry_bytes + 1)
    assert (positions(page), page.next_position) == ([30, 40], 40)
    page = feed(driver, 40, bytes_max=1)
    assert (positions(page), page.next_position) == ([50], 50)
    page = feed(driver, 20, 45, bytes_max=1)
    assert (positions(page), page.next_position) == ([30], 30)


def test_a_page_does_not_grow_beyond_so_many_rows(driver: Driver) -> None:
    many = tuple([b"1"] * ROWS_MAX)
    driver.do(Create("b", "j", JSON, many))
    driver.do(Append("b", "j", (b"2",), JSON))
    page = feed(driver, 50, bytes_max=10**9)
    assert (positions(page), page.next_position) == ([51], 51)
    assert positions(feed(driver, 51, bytes_max=10**9)) == [52]


def test_before_the_bucket_was_made_there_is_nothing_to_follow(driver: Driver) -> None:
    assert code(driver, 0) == "position_trimmed"
    assert code(driver, 8) == "position_trimmed"
    assert positions(feed(driver, 9)) == positions(feed(driver, None)), "nothing lies before it"
    assert positions(feed(driver, 10)) == [20, 30, 40, 50]
    assert code(driver, None, 9) == "position_trimmed"
    assert feed(driver, None, 10).next_position == 10


def test_beyond_the_log_there_is_nothing_yet(driver: Driver) -> None:
    assert code(driver, 51) == "offset_beyond_tail"
    assert code(driver, 20, 51) == "offset_beyond_tail"
    driver.state.begin(60, driver.now)
    page = feed(driver, 51)
    assert (page.entries, page.next_position, page.tail) == ([], 51, 51)
    page = feed(driver, 20, 60)
    assert (page.next_position, page.tail) == (60, 60)


def test_a_bucket_without_rows_can_be_followed() -> None:
    driver = Driver()
    driver.do(CreateBucket("b"))
    page = feed(driver)
    assert (page.entries, page.next_position, page.tail) == ([], 1, 1)
    driver.create("s")
    assert positions(feed(driver, page.next_position)) == [2]


def test_rows_in_the_entry_that_made_the_bucket_are_not_lost() -> None:
    driver = Driver()
    driver.send(CreateBucket("b"), Create("b", "s", None, (b"x",)))
    page = feed(driver)
    assert [(row.index, row.kind) for row in rows(page)] == [(1, "create"), (1, "append")]
    assert (page.next_position, feed(driver, page.next_position).entries) == (1, [])


def test_a_row_tells_all_of_a_message() -> None:
    driver = Driver()
    incarnation = driver.create("j", content_type="Application/JSON; v=1").incarnation
    producer = Producer("p", 3, 0)
    driver.do(Append("b", "j", (b"1", b"22"), JSON, producer=producer))
    content_type = "Application/JSON; v=1"
    assert rows(feed(driver, 1)) == [
        FeedRow(0, "append", "j", incarnation, content_type, JSON, 0, 1, 0, b"1", producer, None),
        FeedRow(0, "append", "j", incarnation, content_type, JSON, 1, 3, 1, b"22", producer, None),
    ]


def test_events_tell_what_a_follower_cannot_know() -> None:
    driver = Driver()
    driver.create("s", b"abcdef")
    driver.do(Create("b", "t", None, ttl_seconds=5, attributes=b'{"title":"x"}'))
    driver.do(Create("b", "u", None, expires_at=START + 9))
    driver.do(Create("b", "f", None, (b"!",), close=True, fork=ForkPoint("s", 1, 2)))
    driver.do(SetAttributes("b", "s", b'{"title":"y"}'))
    driver.publish("s", 6)
    driver.do(Delete("b", "s"))
    told = [(row.kind, row.stream, row.offset, row.next_offset, row.event) for row in rows(feed(driver, 1))]
    assert told == [
        ("create", "t", 0, 0, b'{"ttl_seconds":5,"attributes":{"title":"x"}}'),
        ("create", "u", 0, 0, b'{"expires_at":1700000000000009}'),
        ("fork", "f", 3, 3, b'{"source":"s","offset":3}'),
        ("append", "f", 3, 4, None),
        ("close", "f", 4, 4, None),
        ("attributes", "s", 6, 6, b'{"attributes":{"title":"y"}}'),
        (
            "snapshot",
            "s",
            6,
            6,
            b'{"offset":6,"content_type":"text/plain","size":3,"digest":"sha256:aa","blob":"blob"}',
        ),
        ("trim", "s", 6, 6, b'{"earliest":6}'),
        ("delete", "s", 6, 6, None),
    ]


def test_what_has_ended_or_was_trimmed_stays_in_the_feed() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    before = feed(driver).entries
    driver.publish("s", 3)
    driver.do(Delete("b", "s"))
    made = driver.do(Create("b", "s", None, (b"x",), ttl_seconds=0))
    assert isinstance(made, Created)
    driver.do(Expire("b", "s", made.incarnation, made.deadline or 0))
    page = feed(driver)
    assert page.entries[: len(before)] == before
    assert [row.payload for row in rows(page) if row.kind == "append"] == [b"abc", b"x"]
    assert {row.incarnation for row in rows(page)} == {"3-1-0", made.incarnation}


def test_a_fork_does_not_repeat_what_it_shares() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s")
    assert [row.kind for row in rows(feed(driver, 1))] == ["fork"]


def test_a_feed_has_the_rows_of_its_own_bucket_only(driver: Driver) -> None:
    driver.do(Create("c", "s", None, (b"x",), make_bucket=True))
    assert positions(feed(driver)) == [20, 30, 40, 50]
    other = driver.state.reads.read_feed("c", None, None, 1000)
    assert isinstance(other, FeedPage)
    assert positions(other) == [51]
    refusal = driver.state.reads.read_feed("d", None, None, 1000)
    assert isinstance(refusal, Refused)
    assert refusal.code == "bucket_not_found"


def test_position_index_kind_and_offset_name_a_row() -> None:
    driver = Driver()
    driver.send(
        CreateBucket("b"),
        Create("b", "s", None, (b"abc",), close=True),
        Create("b", "j", JSON, (b"1", b"2", b"3")),
        Append("b", "j", (b"4", b"5"), JSON, counts=(1, 1), close=True),
    )
    driver.publish("j", 5)
    names = [
        (entry.position, row.index, row.kind, row.offset)
        for entry in feed(driver).entries
        for row in entry.rows
    ]
    assert len(set(names)) == len(names)
