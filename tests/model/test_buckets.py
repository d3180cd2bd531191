"""Buckets that end: only empty ones, and what is made again at the name is new."""

import pytest
from tests.model.driving import START, Driver
from tests.model.rows import rows_of

from ursula.model.commands import Append, Create, CreateBucket, Delete, DeleteBucket, SetAttributes, Trim
from ursula.model.outcomes import BucketDeleted, BucketDescription, FeedPage, Refused


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.do(CreateBucket("b"))
    return driver


def test_an_empty_bucket_can_be_deleted(driver: Driver) -> None:
    assert driver.do(DeleteBucket("b")) == BucketDeleted("b")
    assert driver.state.buckets == {}
    assert driver.code(DeleteBucket("b")) == "bucket_not_found"


def test_a_bucket_with_streams_is_not_deleted(driver: Driver) -> None:
    driver.create("s", b"abc")
    driver.do(Append("b", "s", (), None, close=True))
    assert driver.code(DeleteBucket("b")) == "bucket_not_empty"
    driver.do(Delete("b", "s"))
    assert driver.do(DeleteBucket("b")) == BucketDeleted("b")


def test_a_source_out_of_sight_keeps_its_bucket(driver: Driver) -> None:
    driver.create("s", b"abc")
    driver.fork("f", "s")
    driver.do(Delete("b", "s"))
    assert driver.code(DeleteBucket("b")) == "bucket_not_empty"
    driver.do(Delete("b", "f"))
    assert driver.do(DeleteBucket("b")) == BucketDeleted("b")


def test_in_a_deleted_bucket_there_is_nothing(driver: Driver) -> None:
    driver.do(DeleteBucket("b"))
    for command in (
        Create("b", "s", None),
        Append("b", "s", (b"x",), "text/plain"),
        Delete("b", "s"),
        SetAttributes("b", "s", b"{}"),
        Trim("b", "s", 0),
    ):
        assert driver.code(command) == "bucket_not_found"
    for refusal in (
        driver.state.reads.describe_bucket("b"),
        driver.state.reads.describe("b", "s"),
        driver.state.reads.read_feed("b", None, None, 100),
        driver.state.reads.list_streams("b", "", "", 10),
    ):
        assert isinstance(refusal, Refused)
        assert refusal.code == "bucket_not_found"


def test_a_bucket_made_again_is_new(driver: Driver) -> None:
    old = driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    driver.do(DeleteBucket("b"))
    driver.now += 7
    driver.do(CreateBucket("b"))
    assert driver.state.reads.describe_bucket("b") == BucketDescription("b", 0, START + 7)
    assert rows_of(driver.state.buckets["b"].journal) == []
    new = driver.create("s")
    assert (new.new, new.tail, new.incarnation != old.incarnation) == (True, 0, True)
    before = driver.state.reads.read_feed("b", 3, None, 100)
    assert isinstance(before, Refused)
    assert before.code == "position_trimmed"
    feed = driver.state.reads.read_feed("b", None, None, 10_000)
    assert isinstance(feed, FeedPage)
    assert [row.incarnation for entry in feed.entries for row in entry.rows] == [new.incarnation]


def test_a_bucket_may_end_and_begin_again_in_one_entry(driver: Driver) -> None:
    driver.create("s", b"abc")
    driver.send(Delete("b", "s"), DeleteBucket("b"), CreateBucket("b"), Create("b", "s", None, (b"new",)))
    feed = driver.state.reads.read_feed("b", None, None, 10_000)
    assert isinstance(feed, FeedPage)
    assert [(row.index, row.kind) for entry in feed.entries for row in entry.rows] == [
        (3, "create"),
        (3, "append"),
    ]


def test_a_bucket_counts_the_streams_in_sight(driver: Driver) -> None:
    driver.create("s", b"abc")
    driver.fork("f", "s")
    assert driver.state.reads.describe_bucket("b") == BucketDescription("b", 2, START)
    driver.do(Delete("b", "s"))
    assert driver.state.reads.describe_bucket("b") == BucketDescription("b", 1, START)
