"""Cuts: what is before one and what after, and what becomes of a flush."""

from tests.model.driving import Driver
from tests.model.rows import rows_of
from tests.model.storing import cut, evict_stored, flush, flushed, segment, state_object

from ursula.model.commands import (
    Append,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    FlushBegin,
    Flushed,
)
from ursula.model.dump import dump
from ursula.model.journal import Journal
from ursula.model.offsets import BEGINNING
from ursula.model.outcomes import CutMade, Done, FeedPage, Ignored
from ursula.model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import Key, RowKind


def keys_of(sealed: list[dict[Key, None]]) -> set[Key]:
    return {key for keys in sealed for key in keys}


def sealed(state: State) -> list[dict[Key, None]]:
    """What changed since the flushed position, up to the last cut."""
    return [keys for _, keys in state.dirty_rows.sealed]


def sealed_parts(state: State) -> list[tuple[str, Journal]]:
    return [part for _, parts in state.sealed_parts for part in parts]


def stream_key(name: str) -> Key:
    return (RowKind.STREAM, "b", name)


def test_what_shares_the_entry_is_before_the_cut_wherever_it_stands() -> None:
    driver = Driver()
    driver.create("s", b"a")
    outcomes = driver.send(
        Append("b", "s", (b"b",), "text/plain"),
        FlushBegin(1),
        Append("b", "s", (b"c",), "text/plain"),
        Create("b", "t", None),
    )
    assert outcomes[1] == CutMade(driver.state.position)
    driver.state.make_cut()
    assert driver.state.cut == driver.state.position
    assert {stream_key("s"), stream_key("t")} <= keys_of(sealed(driver.state))
    assert not driver.state.dirty_rows.open
    driver.append("s", b"d")
    assert driver.stream("s").end_at(driver.state.cut) == 3


def test_the_next_entry_makes_the_cut_if_nobody_did_before() -> None:
    driver = Driver()
    driver.send(CreateBucket("b"), FlushBegin(1))
    position = driver.state.position
    assert driver.state.cut == 0
    driver.create("s")
    assert driver.state.cut == position
    assert keys_of(sealed(driver.state)) == {(RowKind.BUCKET, "b", "")}
    assert stream_key("s") in driver.state.dirty_rows.open


def test_making_a_cut_twice_or_without_a_reason_does_nothing() -> None:
    driver = Driver()
    driver.create("s")
    driver.state.make_cut()
    assert (driver.state.cut, driver.state.dirty_rows.sealed) == (0, [])
    cut(driver.state)
    driver.state.make_cut()
    assert len(driver.state.dirty_rows.sealed) == 1


def test_a_second_attempt_covers_what_the_first_did_not_store() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    first = cut(driver.state)
    driver.create("t", b"de")
    second = cut(driver.state)
    assert {stream_key("s"), stream_key("t")} <= keys_of(sealed(driver.state))
    rows = [row for _, part in sealed_parts(driver.state) for row in rows_of(part)]
    assert [row.payload for row in rows if row.payload] == [b"abc", b"de"]
    assert driver.do(flushed(driver.state)) == Done(second)
    assert first < driver.state.stored.flushed == second
    assert sealed(driver.state) == []
    assert sealed_parts(driver.state) == []


def test_a_flush_of_the_first_of_two_cuts_leaves_the_second() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    first = cut(driver.state)
    driver.append("s", b"de")
    driver.create("t", b"f")
    second = cut(driver.state)
    driver.append("s", b"g")
    assert driver.do(flushed(driver.state, first)) == Done(first)
    evict_stored(driver.state)
    assert driver.stream("s").messages.payloads == [b"de", b"g"]
    assert stream_key("t") in keys_of(sealed(driver.state))
    assert driver.do(flushed(driver.state, second)) == Done(second)
    evict_stored(driver.state)
    assert driver.stream("s").messages.payloads == [b"g"]


def test_a_flush_that_began_elsewhere_is_ignored() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    first = cut(driver.state)
    driver.append("s", b"de")
    second = cut(driver.state)
    mine, other = flushed(driver.state, first), flushed(driver.state, second, "other")
    assert driver.do(mine) == Done(first)
    before = driver.state.stored.flushed, list(driver.state.segments), driver.state.stored.chain
    assert driver.do(other) == Ignored()
    assert driver.do(mine) == Ignored()
    assert (driver.state.stored.flushed, list(driver.state.segments), driver.state.stored.chain) == before


def test_a_flush_of_nothing_has_no_segment() -> None:
    driver = Driver()
    position = cut(driver.state)
    assert driver.do(Flushed(0, position, None, state_object("state/1", True), 0)) == Done(position)
    assert len(driver.state.segments) == 0
    assert driver.state.stored.flushed == position


def test_a_flush_touches_no_stream() -> None:
    driver = Driver()
    for number in range(50):
        driver.create(f"s{number}", b"abc")
    cut(driver.state)
    streams = driver.state.buckets["b"].streams
    before = {name: (stream.dirty_at, stream.messages.start) for name, stream in streams.items()}
    driver.do(flushed(driver.state))
    assert {name: (stream.dirty_at, stream.messages.start) for name, stream in streams.items()} == before
    assert set(driver.state.dirty_rows.open) == {(RowKind.SEGMENT, f"segments/0-{driver.state.cut}", "")}
    assert driver.content("s7") == b"abc"


def test_letting_go_changes_nothing_that_is_compared() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.fork("f", "s")
    driver.create("j", b"1", b"22", content_type="application/json")
    driver.do(Delete("b", "j"))
    cut(driver.state)
    driver.append("s", b"de")
    driver.do(flushed(driver.state))
    before = dump(driver.state)
    evict_stored(driver.state)
    assert dump(driver.state) == before
    missing = driver.state.reads.read("b", "s", BEGINNING, 100, whole=False)
    assert isinstance(missing, NotInMemory)
    assert missing.offset == 0
    assert driver.page("s", 3).chunks == [b"de"]


def test_a_base_begins_a_new_chain_and_the_old_one_is_replaced() -> None:
    driver = Driver()
    keys: list[str] = []
    for is_base in (True, False, True):
        driver.do(CreateBucket(f"b{len(keys)}"))
        position = cut(driver.state)
        driver.do(flushed(driver.state, is_base=is_base))
        keys.append(f"state/{position}")
    assert [one.key for one in driver.state.stored.chain] == keys[2:]
    assert list(driver.state.stored.replaced) == keys[:2]


# The journal


def test_a_journal_begins_a_new_part_after_a_cut() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    cut(driver.state)
    driver.append("s", b"de")
    bucket = driver.state.buckets["b"]
    first, second = (rows_of(part) for part in bucket.all_parts())
    assert [row.kind for row in first] == ["create", "append"]
    assert [row.payload for row in second] == [b"de"]


def test_what_was_stored_leaves_the_journal_and_the_gauge() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    full = driver.state.gauge.count
    assert full > 0
    flush(driver.state)
    assert driver.state.gauge.count == 0
    driver.append("s", b"de")
    assert 0 < driver.state.gauge.count < full
    assert [row.payload for part in driver.state.buckets["b"].all_parts() for row in rows_of(part)] == [b"de"]


def test_the_feed_continues_after_what_is_stored() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    flush(driver.state)
    driver.append("s", b"de")
    assert driver.state.reads.read_feed("b", None, None, 1000) == FeedNotInMemory(
        driver.state.buckets["b"].position - 1
    )
    page = driver.state.reads.read_feed("b", driver.state.stored.flushed, None, 1000)
    assert isinstance(page, FeedPage)
    assert [row.payload for entry in page.entries for row in entry.rows] == [b"de"]


def test_a_deleted_bucket_keeps_its_rows_until_they_are_flushed() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    driver.do(DeleteBucket("b"))
    driver.do(CreateBucket("b"))
    position = cut(driver.state)
    (bucket, part), *more = sealed_parts(driver.state)
    assert (bucket, more) == ("b", [])
    assert [row.kind for row in rows_of(part)] == ["create", "append", "delete"]
    driver.do(Flushed(0, position, segment(0, position), state_object("state/1", True), driver.now))
    evict_stored(driver.state)
    assert driver.state.gauge.count == 0
    assert sealed_parts(driver.state) == []


def test_a_bucket_that_is_created_again_does_not_show_the_rows_of_the_old_one() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.do(Delete("b", "s"))
    driver.do(DeleteBucket("b"))
    driver.create("s", b"new")
    page = driver.state.reads.read_feed("b", None, None, 1000)
    assert isinstance(page, FeedPage)
    assert [row.payload for entry in page.entries for row in entry.rows] == [None, b"new"]
