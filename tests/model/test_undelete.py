"""Undelete: a stream that was deleted or has expired comes back as it was."""

from collections.abc import Callable

import msgspec
import pytest
from tests.model.driving import SECOND, Driver
from tests.model.rows import all_rows_of
from tests.model.storing import cut, flush, reloaded

from ursula.model.commands import (
    Append,
    Collect,
    Create,
    Delete,
    DeleteBucket,
    Expire,
    Producer,
    SetAttributes,
    Undelete,
)
from ursula.model.deleted import DeletedStream, DeletedStreams
from ursula.model.dump import dump
from ursula.model.outcomes import Appended, Created, Page, Refused, Snapshot, Undeleted
from ursula.model.read.not_in_memory import NotInMemory

Between = Callable[[Driver], None]


def nothing(driver: Driver) -> None:
    """Everything stays in memory."""


def stored(driver: Driver) -> None:
    """Everything is stored and evicted from memory."""
    flush(driver.state)


def restarted(driver: Driver) -> None:
    """The process that undeletes is not the one that deleted."""
    flush(driver.state)
    driver.state = reloaded(driver.state)


@pytest.fixture(params=[nothing, stored, restarted])
def between(request: pytest.FixtureRequest) -> Between:
    """What happens between the end of a stream and its return."""
    happening: Between = request.param
    return happening


def back(driver: Driver, name: str = "s", incarnation: str | None = None) -> Undeleted:
    """Bring back what is sure to be there."""
    outcome = driver.do(Undelete("b", name, incarnation))
    assert isinstance(outcome, Undeleted)
    return outcome


def test_a_stream_comes_back_as_it_was(between: Between) -> None:
    driver = Driver()
    created = driver.create("s", b"1", b"22", content_type="application/json")
    driver.append("s", b"333", media_type="application/json")
    driver.do(SetAttributes("b", "s", b'{"title":"x"}'))
    driver.publish("s", 3, "blob")
    before = driver.described("s")
    driver.do(Delete("b", "s"))
    between(driver)
    assert driver.hidden("s") == "stream_not_found"
    outcome = back(driver)
    assert outcome == Undeleted(created.incarnation, 6, False, None)
    assert driver.described("s") == before
    assert before.snapshot == Snapshot(3, "blob", "text/plain", 3, "sha256:aa")
    assert (before.first_record, before.next_record) == (2, 3)
    page = driver.state.reads.read("b", "s", 3, 100, whole=True)
    if isinstance(page, Page):
        assert page.chunks == [b"333"]
    assert isinstance(page, Page) == (between is nothing)
    listing = driver.state.reads.list_streams("b", "", "", 10)
    assert not isinstance(listing, Refused)
    assert [listed.name for listed in listing.streams] == ["s"]


def test_an_undeleted_stream_continues_where_it_ended(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Append("b", "s", (b"de",), "text/plain", producer=Producer("p", 1, 0)))
    driver.do(Delete("b", "s"))
    between(driver)
    back(driver)
    again = driver.do(Append("b", "s", (b"de",), "text/plain", producer=Producer("p", 1, 0)))
    assert isinstance(again, Appended)
    assert (again.duplicate, again.next_offset) == (True, 5)
    assert driver.append("s", b"f").tail == 6
    assert driver.page("s", 5).chunks == [b"f"]
    ref = driver.stream("s").ref_at(5)
    assert ref is not None
    assert ref.offset == (0 if between is nothing else 5)


def test_it_stays_closed(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    closing = Append("b", "s", (b"de",), "text/plain", close=True, producer=Producer("p", 0, 0))
    driver.do(closing)
    driver.do(Delete("b", "s"))
    between(driver)
    assert back(driver).closed
    assert driver.code(Append("b", "s", (b"x",), "text/plain")) == "stream_closed"
    again = driver.do(closing)
    assert isinstance(again, Appended)
    assert again.duplicate


def test_a_ttl_starts_again(between: Between) -> None:
    driver = Driver()
    created = driver.do(Create("b", "s", None, ttl_seconds=60, make_bucket=True))
    assert isinstance(created, Created)
    driver.now += 61 * SECOND
    driver.do(Expire("b", "s", created.incarnation, created.deadline or 0))
    between(driver)
    driver.now += 1000 * SECOND
    assert back(driver).deadline == driver.now + 60 * SECOND
    assert driver.described("s").ttl_seconds == 60


def test_a_fixed_end_that_has_passed_is_no_more(between: Between) -> None:
    driver = Driver()
    end = driver.now + 60 * SECOND
    created = driver.do(Create("b", "s", None, expires_at=end, make_bucket=True))
    assert isinstance(created, Created)
    driver.now = end
    driver.do(Expire("b", "s", created.incarnation, end))
    between(driver)
    assert back(driver).deadline is None
    assert driver.described("s").expires_at is None


def test_a_fixed_end_to_come_is_kept(between: Between) -> None:
    driver = Driver()
    end = driver.now + 60 * SECOND
    driver.do(Create("b", "s", None, expires_at=end, make_bucket=True))
    driver.do(Delete("b", "s"))
    between(driver)
    assert back(driver).deadline == end
    assert driver.described("s").expires_at == end


def test_a_blob_that_is_shown_again_is_needed_again(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.publish("s", 3, "blob")
    driver.do(Delete("b", "s"))
    between(driver)
    assert "blobs/blob" in driver.state.stored.replaced
    back(driver)
    assert "blobs/blob" not in driver.state.stored.replaced
    assert driver.state.blobs == {"blob": 1}


def test_each_of_very_many_that_had_a_name_can_be_found(between: Between) -> None:
    driver = Driver()
    incarnations = []
    for number in range(40):
        incarnations.append(driver.create("s", b"x" * (number + 1)).incarnation)
        driver.do(Delete("b", "s"))
    between(driver)
    for number in (17, 0, 39):
        assert back(driver, incarnation=incarnations[number]).tail == number + 1
        driver.do(Delete("b", "s"))
    assert driver.code(Undelete("b", "t", incarnations[3])) == "stream_not_found"
    assert back(driver).incarnation == incarnations[39]


# What is refused


def test_a_name_that_is_taken_is_not_given_back(between: Between) -> None:
    driver = Driver()
    old = driver.create("s", b"old").incarnation
    driver.do(Delete("b", "s"))
    new = driver.create("s", b"new").incarnation
    between(driver)
    refusal = driver.refusal(Undelete("b", "s"))
    assert (refusal.code, refusal.incarnation) == ("stream_exists", new)
    assert driver.code(Undelete("b", "s", old)) == "stream_exists"
    driver.do(Delete("b", "s"))
    assert back(driver, incarnation=old).incarnation == old
    assert driver.code(Undelete("b", "s", new)) == "stream_exists"


def test_the_latest_comes_back_unless_another_is_named(between: Between) -> None:
    driver = Driver()
    incarnations = []
    for content in (b"a", b"bb", b"ccc"):
        incarnations.append(driver.create("s", content).incarnation)
        driver.do(Delete("b", "s"))
    between(driver)
    assert back(driver) == Undeleted(incarnations[2], 3, False, None)
    driver.do(Delete("b", "s"))
    assert back(driver, incarnation=incarnations[1]).tail == 2


def test_nothing_is_kept_of_what_never_was(between: Between) -> None:
    driver = Driver()
    driver.create("s")
    between(driver)
    assert driver.code(Undelete("b", "t")) == "stream_not_found"
    assert driver.code(Undelete("c", "s")) == "stream_not_found"
    assert driver.code(Undelete("b", "s")) == "stream_exists"
    driver.do(Delete("b", "s"))
    assert driver.code(Undelete("b", "s", "7-0-0")) == "stream_not_found"


def test_nothing_is_kept_of_what_was_collected(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    between(driver)
    driver.do(Collect(driver.now, driver.state.position))
    back(driver)
    driver.do(Delete("b", "s"))
    driver.do(Collect(driver.now + 1, driver.state.position))
    assert driver.code(Undelete("b", "s")) == "stream_not_found"


def test_a_refusal_changes_nothing() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    driver.create("s")
    driver.state.begin(driver.state.position + 1, driver.now)
    before = dump(driver.state)
    driver.state.apply(Undelete("b", "s"), 0)
    driver.state.apply(Undelete("b", "t"), 1)
    assert dump(driver.state) == before


# Forks


def test_a_fork_comes_back_if_its_source_is_there(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s", 2)
    driver.append("f", b"x")
    driver.do(Delete("b", "f"))
    between(driver)
    back(driver, "f")
    assert driver.described("f").tail == 3
    assert driver.stream("f").parent is driver.stream("s")
    assert driver.stream("s").fork_count == 1
    driver.do(Delete("b", "s"))
    assert driver.hidden("s") == "stream_gone"


def test_a_fork_comes_back_after_its_source(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s", 2)
    driver.do(Delete("b", "f"))
    driver.do(Delete("b", "s"))
    between(driver)
    refusal = driver.refusal(Undelete("b", "f"))
    assert refusal.code == "stream_not_found"
    assert "'s'" in refusal.message
    back(driver, "s")
    back(driver, "f")
    assert driver.stream("f").parent is driver.stream("s")


def test_a_fork_does_not_come_back_to_another_stream_of_that_name(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s", 2)
    driver.do(Delete("b", "f"))
    driver.do(Delete("b", "s"))
    driver.create("s", b"xyz")
    between(driver)
    assert driver.code(Undelete("b", "f")) == "stream_not_found"


def test_a_source_that_forks_kept_comes_back_with_them(between: Between) -> None:
    driver = Driver()
    created = driver.create("s", b"abc")
    driver.publish("s", 3, "blob", trim=False)
    driver.fork("f", "s", 2)
    driver.do(Delete("b", "s"))
    between(driver)
    assert driver.hidden("s") == "stream_gone"
    assert back(driver).incarnation == created.incarnation
    assert driver.stream("f").parent is driver.stream("s")
    assert driver.stream("s").fork_count == 1
    assert driver.described("s").snapshot is not None
    assert driver.state.stream_count == 2
    driver.do(Delete("b", "f"))
    assert driver.described("s").tail == 3


def test_a_source_that_forks_keep_after_its_collection_keeps_its_name_taken(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s", 2)
    driver.do(Delete("b", "s"))
    between(driver)
    driver.do(Collect(driver.now + 1, driver.state.position))
    assert driver.code(Undelete("b", "s")) == "stream_exists"
    assert driver.described("f").tail == 2


# What is in memory


def test_a_stream_may_come_back_while_memory_lets_go_of_it() -> None:
    driver = Driver()
    driver.create("s", *(b"%d" % number for number in range(10)), content_type="application/json")
    driver.do(Delete("b", "s"))
    cut(driver.state)
    assert not driver.state.deleted.drop_stored("b", "s", driver.state.cut, 4)
    back(driver)
    assert (driver.stream("s").record_base, driver.stream("s").next_record) == (4, 10)
    assert driver.page("s", 4).chunks == [b"%d" % number for number in range(4, 10)]
    assert isinstance(driver.state.reads.read("b", "s", 0, 100, whole=True), NotInMemory)
    assert driver.state.deleted.drop_stored("b", "s", driver.state.cut, 4)
    assert len(driver.stream("s").messages.payloads) == 6


def test_messages_that_are_not_stored_yet_stay_with_what_is_kept_of_a_stream() -> None:
    driver = Driver()
    for _ in range(5):
        driver.create("s", b"stored")
        driver.do(Delete("b", "s"))
    cut(driver.state)
    driver.create("s", b"not stored")
    driver.do(Delete("b", "s"))
    bites = 1
    while not driver.state.deleted.drop_stored("b", "s", driver.state.cut, 2):
        bites += 1
    assert bites == 3
    back(driver)
    assert driver.content("s") == b"not stored"


# The bucket and its journal


def test_a_bucket_that_was_deleted_comes_back_with_its_stream(between: Between) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    driver.do(DeleteBucket("b"))
    between(driver)
    back(driver)
    described = driver.state.reads.describe_bucket("b")
    assert not isinstance(described, Refused)
    assert described.stream_count == 1


def test_the_journal_tells_that_a_stream_is_back() -> None:
    driver = Driver()
    created = driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    back(driver)
    row = all_rows_of(driver.state.buckets["b"])[-1]
    assert (row.kind, row.incarnation, row.offset, row.payload) == ("undelete", created.incarnation, 3, None)


@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_a_fork_of_a_fork_that_was_trimmed_meanwhile_is_read_from_the_store(content_type: str) -> None:
    driver = Driver()
    driver.create("root", b"11", b"22", content_type=content_type)
    driver.fork("middle", "root")
    driver.append("middle", b"33", media_type=content_type)
    driver.fork("leaf", "middle")
    driver.append("leaf", b"44", media_type=content_type)
    driver.do(Delete("b", "leaf"))
    driver.publish("middle", 6)
    back(driver, "leaf")
    found = driver.state.reads.read("b", "leaf", 0, 1000, False)
    assert isinstance(found, NotInMemory), "what lies between two parts that are in memory is not"
    if content_type == "application/json":
        assert isinstance(driver.state.reads.read_records("b", "leaf", 0, None, 10, 1000), NotInMemory)
    assert driver.page("leaf", 6).chunks == [b"44"]


@pytest.mark.parametrize("count", [1, 15, 16, 255, 256, 65_535, 65_536, 70_000])
def test_the_row_of_a_name_is_a_msgpack_array_of_all_its_tombstones(count: int) -> None:
    """It is put together from the bytes of each, and must be what encoding all of them would give."""
    deleted = DeletedStreams()
    tombstone = DeletedStream(("b", "s"), "0-1-0", 7, b"row")
    deleted.by_name["b", "s"] = [tombstone.kept] * count
    row = deleted.row("b", "s")
    assert row == msgspec.msgpack.encode([("0-1-0", 7, b"row")] * count)
