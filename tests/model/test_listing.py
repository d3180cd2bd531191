"""Lists of streams and buckets: sorted by name as bytes, in pages."""

import pytest
from tests.model.driving import SECOND, START, Driver

from ursula.model.commands import Append, Create, CreateBucket, Delete, DeleteBucket, Expire
from ursula.model.outcomes import BucketDescription, Created, Listed, Listing, Refused

NAMES = ["Z", "a", "a/1", "ab", "b", "é", "\uffff", "😀"]


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    for name in reversed(NAMES):
        driver.create(name)
    return driver


def page(driver: Driver, prefix: str = "", after: str = "", count: int = 100) -> tuple[list[str], bool]:
    listing = driver.state.reads.list_streams("b", prefix, after, count)
    assert isinstance(listing, Listing)
    return [stream.name for stream in listing.streams], listing.has_more


def test_streams_are_listed_by_their_names_as_bytes(driver: Driver) -> None:
    assert page(driver) == (NAMES, False)
    assert sorted(NAMES, key=str.encode) == NAMES


@pytest.mark.parametrize("count", range(1, 10))
def test_pages_follow_each_other_without_a_gap(driver: Driver, count: int) -> None:
    got: list[str] = []
    more = True
    while more and len(got) < len(NAMES):
        names, more = page(driver, after=got[-1] if got else "", count=count)
        got += names
    assert (got, more) == (NAMES, False)


def test_there_is_more_only_if_there_is(driver: Driver) -> None:
    assert page(driver, count=len(NAMES)) == (NAMES, False)
    assert page(driver, count=len(NAMES) - 1) == (NAMES[:-1], True)
    assert page(driver, after=NAMES[-1], count=1) == ([], False)


def test_a_prefix_chooses_what_begins_with_it(driver: Driver) -> None:
    assert page(driver, "a") == (["a", "a/1", "ab"], False)
    assert page(driver, "a/") == (["a/1"], False)
    assert page(driver, "é") == (["é"], False)
    assert page(driver, "c") == ([], False)
    assert page(driver, "a", count=3) == (["a", "a/1", "ab"], False)
    assert page(driver, "a", count=2) == (["a", "a/1"], True)


def test_a_cursor_is_exclusive_and_need_not_exist(driver: Driver) -> None:
    assert page(driver, after="a") == (NAMES[2:], False)
    assert page(driver, after="a0") == (NAMES[3:], False)
    assert page(driver, "a", after="a") == (["a/1", "ab"], False)
    assert page(driver, "a", after="a/1") == (["ab"], False)
    assert page(driver, "a", after="Z") == (["a", "a/1", "ab"], False)
    assert page(driver, "a", after="ab") == ([], False)
    assert page(driver, "a", after="b") == ([], False)


def test_a_list_tells_what_each_stream_is() -> None:
    driver = Driver()
    driver.create("s", content_type="Text/Plain; v=1")
    driver.now += SECOND
    driver.append("s", b"abc")
    driver.now += SECOND
    driver.do(Append("b", "s", (), None, close=True))
    listing = driver.state.reads.list_streams("b", "", "", 10)
    listed = Listed("s", True, "Text/Plain; v=1", 3, START, START + SECOND)
    assert listing == Listing([listed], has_more=False)


def test_what_a_client_does_not_see_is_not_listed(driver: Driver) -> None:
    driver.fork("f", "a")
    driver.do(Delete("b", "a"))
    driver.do(Delete("b", "b"))
    created = driver.do(Create("b", "short", None, ttl_seconds=0))
    assert isinstance(created, Created)
    assert "short" in page(driver)[0]
    driver.do(Expire("b", "short", created.incarnation, created.deadline or 0))
    assert page(driver)[0] == ["Z", "a/1", "ab", "f", "é", "\uffff", "😀"]
    driver.create("b")
    assert "b" in page(driver)[0]


def test_a_bucket_that_is_not_there_has_no_list(driver: Driver) -> None:
    refusal = driver.state.reads.list_streams("nowhere", "", "", 10)
    assert isinstance(refusal, Refused)
    assert refusal.code == "bucket_not_found"


def test_buckets_are_listed_by_name_too() -> None:
    driver = Driver()
    for number, name in enumerate(["d", "a", "c", "b"]):
        driver.now = START + number
        driver.do(CreateBucket(name))
    driver.create("s")
    listed = driver.state.reads.list_buckets("", 10)
    assert [bucket.name for bucket in listed] == ["a", "b", "c", "d"]
    assert listed[1] == BucketDescription("b", 1, START + 3)
    assert [bucket.name for bucket in driver.state.reads.list_buckets("a", 2)] == ["b", "c"]
    assert [bucket.name for bucket in driver.state.reads.list_buckets("bb", 10)] == ["c", "d"]
    assert driver.state.reads.list_buckets("d", 10) == []
    driver.do(DeleteBucket("c"))
    assert [bucket.name for bucket in driver.state.reads.list_buckets("", 10)] == ["a", "b", "d"]
