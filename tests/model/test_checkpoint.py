"""The state as rows: what is loaded is what there was, and goes on as if nothing had happened."""

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.model.drawing import batched
from tests.model.driving import SECOND, START, Driver
from tests.model.storing import all_rows, cut, flush, flushed, loaded, reloaded

from ursula.model.checkpoint.checkpoint import Loader, all_keys, group_row, row_of
from ursula.model.commands import (
    AnyCommand,
    Append,
    Collect,
    Create,
    Delete,
    DeleteBucket,
    FlushBegin,
    Merge,
    Producer,
    SetAttributes,
    Undelete,
)
from ursula.model.deleted import DeletedStream, DeletedStreams
from ursula.model.dump import dump
from ursula.model.offsets import BEGINNING, TAIL
from ursula.model.outcomes import Appended, Created, Done, FeedPage, Page, Undeleted
from ursula.model.read.not_in_memory import FeedNotInMemory, NotInMemory
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import RowKind
from ursula.model.stream.row import RowUnreadable

bounded = settings(
    max_examples=80,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture
def driver() -> Driver:
    """One of everything, up to a cut."""
    driver = Driver()
    driver.create("s", b"abc")
    driver.append("s", b"defg")
    driver.create("j", b"1", b"22", content_type="application/json")
    driver.fork("f", "s", 3)
    driver.fork("g", "f")
    driver.create("hidden", b"xyz")
    driver.fork("h", "hidden")
    driver.do(Delete("b", "hidden"))
    driver.do(Create("b", "t", None, (b"x",), ttl_seconds=60))
    driver.do(Create("b", "e", None, expires_at=driver.now + SECOND))
    driver.do(Append("b", "j", (b"3",), "application/json", producer=Producer("p", 2, 0)))
    driver.do(Append("b", "t", (b"y",), "application/octet-stream", True, Producer("q", 0, 0), "seq"))
    driver.publish("s", 3, "blob")
    driver.do(SetAttributes("b", "s", b'{"title":"x"}'))
    driver.create("ended", b"123")
    driver.do(Delete("b", "ended"))
    driver.create("ended", b"4")
    driver.do(Delete("b", "ended"))
    driver.do(Create("c", "only", None, make_bucket=True))
    cut(driver.state)
    return driver


def test_what_is_loaded_is_what_there_was(driver: Driver) -> None:
    state = reloaded(driver.state)
    assert dump(state) == dump(driver.state)
    assert state.cut == state.position == driver.state.position
    assert state.blobs == driver.state.blobs
    assert reloaded(state).stream_count == driver.state.stream_count


def test_rows_may_come_in_any_order(driver: Driver) -> None:
    rows = all_rows(driver.state)
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert dump(loaded(group_row(driver.state), rows)) == dump(driver.state)


def test_a_loaded_stream_is_described_and_listed_as_before_and_its_bytes_are_in_the_store(
    driver: Driver,
) -> None:
    state = reloaded(driver.state)
    for name in ("s", "j", "f", "g", "h", "t", "e", "hidden"):
        assert state.reads.describe("b", name) == driver.state.reads.describe("b", name)
    assert state.reads.list_streams("b", "", "", 99) == driver.state.reads.list_streams("b", "", "", 99)
    missing = state.reads.read("b", "s", BEGINNING, 100, whole=False)
    assert isinstance(missing, NotInMemory)
    assert missing.offset == 3
    assert isinstance(state.reads.read("b", "s", TAIL, 100, whole=False), Page)


def test_the_segment_of_the_manifest_is_readable_before_its_flush_is_replayed(driver: Driver) -> None:
    state = reloaded(driver.state)
    command = flushed(driver.state)
    assert state.segment_at(1) is None
    state.stored.ahead = command.segment
    assert state.segment_at(1) == state.segment_after(0) == command.segment
    assert (state.stored.flushed, state.stored_to) == (0, state.cut)
    assert state.reads.read_feed("b", None, None, 1000) == FeedNotInMemory(state.buckets["b"].position - 1)
    assert isinstance(state.reads.read_feed("b", state.cut, None, 1000), FeedPage)


def test_replaying_the_flush_has_the_outcome_it_had_first(driver: Driver) -> None:
    state = reloaded(driver.state)
    command = flushed(driver.state)
    state.stored.ahead = command.segment
    for one in (driver.state, state):
        one.begin(driver.state.cut + 1, driver.now)
        assert one.apply(command, 0) == Done(command.cut)
    assert state.stored.ahead is None
    assert state.segment_at(1) == command.segment
    assert dump(state) == dump(driver.state)


def test_a_loaded_state_knows_its_producers_and_its_dead(driver: Driver) -> None:
    state = reloaded(driver.state)
    state.begin(state.position + 1, driver.now)
    again = Append("b", "j", (b"3",), "application/json", producer=Producer("p", 2, 0))
    outcome = state.apply(again, 0)
    assert isinstance(outcome, Appended)
    assert outcome.duplicate
    assert isinstance(state.apply(Undelete("b", "ended"), 1), Undeleted)
    assert isinstance(state.apply(Undelete("b", "hidden"), 2), Undeleted)


def test_a_loaded_state_tells_which_streams_have_a_deadline(driver: Driver) -> None:
    loader = Loader(group_row(driver.state))
    for key, row in all_rows(driver.state):
        loader.add(*key, row)
    for _ in loader.finish():
        pass
    assert sorted(loader.deadlines) == [("b", "e"), ("b", "t")]


def test_changes_are_loaded_on_top_of_a_base() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.create("t")
    driver.do(Create("c", "u", None, make_bucket=True))
    cut(driver.state)
    rows = all_rows(driver.state)
    driver.do(flushed(driver.state))
    driver.append("s", b"de")
    driver.do(Delete("b", "t"))
    driver.do(Delete("c", "u"))
    driver.do(DeleteBucket("c"))
    cut(driver.state)
    dirty_at = [key for _, keys in driver.state.dirty_rows.sealed for key in keys]
    rows += [(key, row_of(driver.state, key)) for key in dirty_at]
    assert dump(loaded(group_row(driver.state), rows)) == dump(driver.state)


def test_a_merged_segment_may_be_loaded_before_its_inputs_are_gone() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    flush(driver.state)
    driver.append("s", b"de")
    flush(driver.state)
    before = all_rows(driver.state)
    inputs = list(driver.state.segments)
    merged = msgspec.structs.replace(inputs[1], first=0, key="segments/merged")
    driver.do(Merge(tuple(one.key for one in inputs), merged, driver.now))
    cut(driver.state)
    hidden = [((RowKind.SEGMENT, one.key, ""), None) for one in inputs]
    state = loaded(group_row(driver.state), [*before, *all_rows(driver.state), *hidden])
    assert list(state.segments) == [merged]


@bounded
@given(batched(16, prove=True), st.integers(0, 1000), st.data())
def test_a_loaded_state_continues_as_the_other_does(
    log: list[tuple[int, int, list[AnyCommand]]], seed: int, data: st.DataObject
) -> None:
    middle = data.draw(st.integers(0, len(log) - 1))
    state, other = State(0), State(0)
    for number, (position, at, commands) in enumerate(log):
        state.begin(position, at)
        with_cut = [*commands, FlushBegin(1)] if number == middle else commands
        outcomes = [state.apply(command, index) for index, command in enumerate(with_cut)]
        if number < middle:
            continue
        if number == middle:
            state.make_cut()
            rows = all_rows(state)
            random.Random(seed).shuffle(rows)
            other = loaded(group_row(state), rows)
        else:
            other.begin(position, at)
            assert [other.apply(command, index) for index, command in enumerate(commands)] == outcomes
        assert dump(other) == dump(state)


# What cannot be read


def test_a_state_of_another_version_is_refused(driver: Driver) -> None:
    fields = msgspec.msgpack.decode(group_row(driver.state))
    with pytest.raises(RowUnreadable, match="version 3"):
        Loader(msgspec.msgpack.encode([3, *fields[1:], "from the future"]))
    with pytest.raises(RowUnreadable):
        Loader(msgspec.msgpack.encode([*fields, "from the future"]))
    with pytest.raises(RowUnreadable):
        Loader(b"\x00 not ours")
    with pytest.raises(RowUnreadable):
        Loader(msgspec.msgpack.encode([]))


def test_a_state_of_version_1_has_no_count_and_no_hash(driver: Driver) -> None:
    fields = msgspec.msgpack.decode(group_row(driver.state))
    state = Loader(msgspec.msgpack.encode([1, *fields[1:8]])).state
    assert (state.position, state.entry_count, state.entries_hash) == (driver.state.position, 0, b"")


def test_the_count_and_the_hash_of_the_entries_are_stored(driver: Driver) -> None:
    driver.state.hash_entry(b"entry", [])
    state = Loader(group_row(driver.state)).state
    assert state.entry_count == driver.state.entry_count > 0
    assert state.entries_hash == driver.state.entries_hash != b""


def test_a_row_that_cannot_be_read_stops_the_start(driver: Driver) -> None:
    group = group_row(driver.state)
    good = row_of(driver.state, (RowKind.STREAM, "b", "s"))
    assert good is not None
    fields = msgspec.msgpack.decode(good)
    newer = msgspec.msgpack.encode([2, *fields[1:]])
    longer = msgspec.msgpack.encode([*fields, *[None] * 30])
    for kind, row in [
        (RowKind.STREAM, newer),
        (RowKind.STREAM, longer),
        (RowKind.STREAM, b"\xc1"),
        (RowKind.BUCKET, b"\x90"),
        (RowKind.BUCKET, msgspec.msgpack.encode([2, 1, 1])),
        (RowKind.GRAVE, b"\x91\x90"),
        (RowKind.SEGMENT, b"\x90"),
        (RowKind.REPLACED, b"\x01"),
        (99, good),
    ]:
        with pytest.raises(RowUnreadable):
            loaded(group, [((int(kind), "b", "s"), row)])


def test_a_fork_without_its_source_stops_the_start(driver: Driver) -> None:
    rows = [(key, row) for key, row in all_rows(driver.state) if key != (RowKind.STREAM, "b", "f")]
    with pytest.raises(RowUnreadable, match="which the state does not have"):
        loaded(group_row(driver.state), rows)


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_the_graves_of_a_name_are_one_row_however_many(count: int) -> None:
    deleted = DeletedStreams()
    row = row_of(buried(), (RowKind.STREAM, "b", "s"))
    assert row is not None
    for number in range(count):
        deleted.add(DeletedStream(("b", "s"), f"0-{number}-0", number, row))
    found = deleted.row("b", "s")
    assert found == msgspec.msgpack.encode([(f"0-{number}-0", number, row) for number in range(count)])


def buried() -> State:
    """A stream `s` that is there again, of which three have ended."""
    driver = Driver()
    for text in (b"a", b"bb", b"ccc"):
        driver.create("s", text)
        driver.do(Delete("b", "s"))
        driver.now += SECOND
    driver.create("s", b"dddd")
    return driver.state


def test_the_last_row_of_a_name_tells_all_that_is_kept_of_it() -> None:
    state, key = buried(), (RowKind.GRAVE, "b", "s")
    first = row_of(state, key)
    state.apply(Collect(START + SECOND, 0), 0)
    second = row_of(state, key)
    rows = all_rows(state)
    assert dump(loaded(group_row(state), [(key, first), *rows, (key, second)])) == dump(state)
    hidden = loaded(group_row(state), [*rows, (key, None)])
    assert not hidden.deleted.by_name
    assert not hidden.deleted.incarnations


def test_what_is_loaded_is_collected_by_time_though_it_came_by_name() -> None:
    driver = Driver()
    for name in ("c", "a", "b", "a"):
        driver.create(name, b"x")
        driver.do(Delete("b", name))
        driver.now += SECOND
    state = reloaded(driver.state)
    for ended in (1, 2, 3, 4):
        for each in (driver.state, state):
            each.begin(
                driver.state.position + 1 if each is driver.state else driver.state.position, driver.now
            )
            each.apply(Collect(START + ended * SECOND, 0), 0)
        assert dump(state) == dump(driver.state)
        assert len(state.deleted.incarnations) == 4 - ended


def test_every_row_is_walked_through_once(driver: Driver) -> None:
    keys = list(all_keys(driver.state))
    assert len(keys) == len(set(keys))
    assert all(row_of(driver.state, key) is not None for key in keys)
    assert {key[0] for key in keys} >= {RowKind.BUCKET, RowKind.STREAM, RowKind.GRAVE}
    assert (RowKind.STREAM, "b", "hidden") in keys
    assert sorted(all_keys(reloaded(driver.state))) == sorted(keys)


def test_creating_a_stream_again_after_a_start_finds_it(driver: Driver) -> None:
    state = reloaded(driver.state)
    state.begin(state.position + 1, driver.now)
    outcome = state.apply(Create("c", "only", None), 0)
    assert isinstance(outcome, Created)
    assert not outcome.new
