"""Merges put segments together, and collections end what nobody needs; streams notice neither."""

import time

import pytest
from msgspec.structs import replace
from tests.model.driving import SECOND, Driver, publication
from tests.model.storing import cut, flush, flushed, segment

from ursula.model.codec.entry import Batch
from ursula.model.commands import (
    Append,
    Body,
    Collect,
    Create,
    Delete,
    IngestBegin,
    IngestRow,
    IngestRows,
    Merge,
    PlainAppend,
    RequestFlush,
    StoredSegment,
    Undelete,
)
from ursula.model.dump import dump
from ursula.model.outcomes import Done, Ignored, Refused, SnapshotPublished, Undeleted
from ursula.model.store_view.dirty_rows import RowKind


@pytest.fixture
def driver() -> Driver:
    """A stream `s` in three segments."""
    driver = Driver()
    driver.create("s", b"abc")
    flush(driver.state)
    for content in (b"de", b"f"):
        driver.append("s", content)
        flush(driver.state)
    return driver


def segments(driver: Driver) -> list[StoredSegment]:
    return list(driver.state.segments)


def keys(driver: Driver) -> tuple[str, ...]:
    return tuple(one.key for one in driver.state.segments)


def merged(driver: Driver, first: int = 0, last: int = 2) -> StoredSegment:
    """What holds the rows of these segments."""
    inputs = segments(driver)
    return segment(inputs[first].first, inputs[last].last, "segments/merged")


# Merging


def test_one_segment_takes_the_place_of_its_inputs(driver: Driver) -> None:
    inputs, output = keys(driver), merged(driver, 0, 1)
    assert driver.do(Merge(inputs[:2], output, driver.now)) == Done(driver.state.position)
    assert keys(driver) == ("segments/merged", inputs[2])
    assert {key for key in driver.state.stored.replaced if key.startswith("segments/")} == set(inputs[:2])


def test_a_merge_wants_a_flush_until_its_own_position_is_flushed(driver: Driver) -> None:
    stored = driver.state.stored
    driver.do(Merge(keys(driver)[:2], merged(driver, 0, 1), driver.now))
    assert stored.merged_at == driver.state.position > stored.flushed
    flush(driver.state)
    assert stored.merged_at <= stored.flushed


def test_a_request_for_a_base_is_open_until_there_is_one(driver: Driver) -> None:
    stored = driver.state.stored
    driver.do(RequestFlush(base=True))
    assert stored.flush_requested_at == stored.base_requested_at == driver.state.position
    flush(driver.state)
    assert stored.flush_requested_at <= stored.flushed
    assert stored.base_requested_at, "that flush wrote only what had changed"
    cut(driver.state)
    driver.do(flushed(driver.state, is_base=True))
    assert not stored.base_requested_at


def test_the_rows_of_several_batches_have_an_index_each() -> None:
    driver = Driver()
    driver.create("s")
    driver.do(IngestBegin("b", "job", 1, ("staging/b/x",), True, None, False, driver.now))
    rows = tuple(IngestRow("s", (b"x",), "text/plain") for _ in range(3))
    driver.state.begin(driver.state.position + 1, driver.now)
    driver.state.apply_batches(
        [
            Batch(1, driver.now, [PlainAppend("b", "s", (b"a",), "text/plain")]),
            Batch(2, driver.now, [IngestRows("b", "job", 1, 0, 0, rows, True)]),
            Batch(3, driver.now, [PlainAppend("b", "s", (b"b",), "text/plain")]),
        ]
    )
    assert list(driver.state.buckets["b"].journal.indexes)[-5:] == [0, 1, 2, 3, 4]


def test_streams_find_their_bytes_in_the_new_segment(driver: Driver) -> None:
    row = driver.state.buckets["b"].row("s")
    output = merged(driver)
    driver.do(Merge(keys(driver), output, driver.now))
    assert driver.state.buckets["b"].row("s") == row
    for offset in range(6):
        ref = driver.stream("s").ref_at(offset)
        assert ref is not None
        assert driver.state.segment_at(ref.position) == output


def test_the_rows_of_a_merge_are_flushed_like_others(driver: Driver) -> None:
    inputs = keys(driver)
    driver.do(Merge(inputs, merged(driver), driver.now))
    dirty_at = {key for key in driver.state.dirty_rows.open if key[0] == RowKind.SEGMENT}
    assert dirty_at == {(RowKind.SEGMENT, key, "") for key in (*inputs, "segments/merged")}


@pytest.mark.parametrize("wrong", ["gone", "not neighbours", "in another order", "nothing", "unknown"])
def test_a_merge_of_what_is_not_there_is_ignored(driver: Driver, wrong: str) -> None:
    first, second, third = keys(driver)
    inputs: tuple[str, ...] = {
        "gone": (first, second),
        "not neighbours": (first, third),
        "in another order": (second, first),
        "nothing": (),
        "unknown": (third, "segments/unknown"),
    }[wrong]
    if wrong == "gone":
        driver.do(Merge((second, third), segment(0, 1, "segments/other"), driver.now))
    driver.state.begin(driver.state.position + 1, driver.now)
    before = dump(driver.state)
    assert driver.state.apply(Merge(inputs, merged(driver, 0, 1), driver.now), 0) == Ignored()
    assert dump(driver.state) == before


def test_a_merge_may_leave_nothing(driver: Driver) -> None:
    inputs = keys(driver)
    driver.do(Merge(inputs[:1], None, driver.now))
    assert keys(driver) == inputs[1:]
    assert driver.state.segment_at(1) is None
    assert driver.state.segment_after(0) == segments(driver)[0]


def test_the_table_knows_how_much_there_is(driver: Driver) -> None:
    table = driver.state.segments
    assert (len(table), table.size, table.payload_bytes) == (3, 300, 30)
    driver.do(Merge(keys(driver), merged(driver), driver.now))
    assert (len(table), table.size, table.payload_bytes) == (1, 100, 10)


# Collecting


def test_what_was_replaced_is_collected_after_the_horizon_and_the_manifest(driver: Driver) -> None:
    inputs = keys(driver)
    driver.do(Merge(inputs, merged(driver), driver.now))
    position = driver.state.position
    for horizon, manifest in ((driver.now, position), (driver.now + 1, position - 1)):
        driver.do(Collect(horizon, manifest))
        assert set(inputs) <= driver.state.stored.replaced.keys()
    driver.do(Collect(driver.now + 1, position))
    assert not set(inputs) & driver.state.stored.replaced.keys()
    assert keys(driver) == ("segments/merged",)


def test_a_horizon_never_goes_back(driver: Driver) -> None:
    driver.do(Collect(driver.now, 0))
    driver.do(Collect(driver.now - SECOND, 0))
    assert driver.state.stored.horizon == driver.now


def test_an_object_that_may_be_collected_already_is_not_taken(driver: Driver) -> None:
    cut(driver.state)
    flush_command, merge_command = flushed(driver.state), Merge(keys(driver), merged(driver), driver.now)
    snapshot = replace(publication("s", 6), record=0, made_at=driver.now)
    driver.do(Collect(driver.now + 1, driver.state.position))
    assert driver.do(flush_command) == Ignored()
    assert driver.do(merge_command) == Ignored()
    refusal = driver.do(snapshot)
    assert isinstance(refusal, Refused)
    assert refusal.code == "unavailable"
    body = Body("late", (3,), driver.now)
    late = driver.do(Append("b", "s", (), "text/plain", body=body))
    assert isinstance(late, Refused)
    assert late.code == "unavailable"
    late = driver.do(Create("b", "t", "text/plain", body=body))
    assert isinstance(late, Refused)
    assert late.code == "unavailable"
    assert driver.hidden("t") == "stream_not_found"
    assert driver.described("s").tail == 6
    assert driver.do(replace(flush_command, made_at=driver.now + 1)) == Done(driver.state.cut)
    assert isinstance(driver.do(replace(snapshot, made_at=driver.now + 1)), SnapshotPublished)


def test_a_snapshot_that_was_published_in_time_stays_published(driver: Driver) -> None:
    snapshot = replace(publication("s", 6), record=0, made_at=driver.now)
    driver.do(snapshot)
    driver.do(Collect(driver.now + 1, driver.state.position))
    again = driver.do(snapshot)
    assert isinstance(again, SnapshotPublished)
    assert again.duplicate


def test_what_has_ended_can_be_brought_back_until_it_is_collected(driver: Driver) -> None:
    driver.do(Delete("b", "s"))
    driver.now += SECOND
    driver.create("t")
    driver.do(Delete("b", "t"))
    driver.do(Collect(driver.now, 0))
    assert driver.code(Undelete("b", "s")) == "stream_not_found"
    assert isinstance(driver.do(Undelete("b", "t")), Undeleted)


def bury(driver: Driver, moments: int, names: int, ends: int) -> None:
    """Let streams end and blobs be replaced, so often at each moment."""
    driver.create("shown", b"x")
    driver.publish("shown", 1, "first")
    for moment in range(moments):
        for number in range(ends):
            name = f"t{(moment * ends + number) % names}"
            driver.create(name, b"x")
            driver.do(Delete("b", name))
            driver.append("shown", b"x")
            driver.publish("shown", driver.described("shown").tail, f"blob-{moment}-{number}")
        driver.now += SECOND


def steps_to(driver: Driver, horizon: int, count: int) -> list[tuple[int, int]]:
    """Collect in steps; returns how many graves and replaced objects each one ended."""
    state, reached, ended = driver.state, 0, []
    while reached != horizon:
        before = len(state.deleted.incarnations), len(state.stored.replaced)
        further = state.collection_step(horizon, reached, count)
        assert further > reached
        reached = further
        driver.do(Collect(reached, state.position))
        ended.append((before[0] - len(state.deleted.incarnations), before[1] - len(state.stored.replaced)))
    return ended


@pytest.mark.parametrize("names", [1, 7, 200])
def test_a_collection_in_steps_comes_to_the_same_as_one(names: int) -> None:
    in_steps, at_once = Driver(), Driver()
    for driver in (in_steps, at_once):
        bury(driver, 30, names, 4)
    horizon = in_steps.now - 9 * SECOND
    ended = steps_to(in_steps, horizon, 10)
    for _ in ended[1:]:
        at_once.do(Collect(0, 0))
    at_once.do(Collect(horizon, in_steps.state.position))
    assert dump(in_steps.state) == dump(at_once.state)
    assert len(in_steps.state.deleted.incarnations) == 9 * 4
    assert dict(in_steps.state.dirty_rows.open) == dict(at_once.state.dirty_rows.open)


def test_no_step_of_a_collection_ends_more_than_it_should() -> None:
    driver = Driver()
    bury(driver, 30, 200, 4)
    ended = steps_to(driver, driver.now, 10)
    assert sum(deleted for deleted, _ in ended) == 120
    assert len(ended) == 15, "what ended at one moment goes together, so eight at once"
    assert all(deleted <= 10 and objects <= 10 for deleted, objects in ended)


def test_what_ended_at_one_moment_is_collected_at_once_however_much_it_is() -> None:
    driver = Driver()
    bury(driver, 2, 200, 50)
    assert [deleted for deleted, _ in steps_to(driver, driver.now, 10)] == [50, 50, 0]


def test_a_step_goes_past_what_a_manifest_still_names() -> None:
    driver = Driver()
    bury(driver, 30, 200, 4)
    horizon, reached, count = driver.now, 0, 0
    while reached != horizon:
        reached = driver.state.collection_step(horizon, reached, 10)
        driver.do(Collect(reached, 0))
        count += 1
    assert count == 15
    assert not driver.state.deleted.incarnations
    assert len(driver.state.stored.replaced) == 120
    driver.do(Collect(horizon, driver.state.position))
    assert not driver.state.stored.replaced


def test_an_object_that_is_replaced_again_is_kept_from_then_on() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.publish("s", 3, "blob")
    driver.do(Delete("b", "s"))
    driver.now += SECOND
    driver.do(Undelete("b", "s"))
    driver.do(Delete("b", "s"))
    driver.do(Collect(driver.now, driver.state.position))
    assert list(driver.state.stored.replaced) == ["blobs/blob"]
    for later, kept in ((0, ["blobs/blob"]), (SECOND, [])):
        driver.now += later
        driver.do(Collect(driver.now - later + 1, driver.state.position))
        assert list(driver.state.stored.replaced) == kept


def test_very_many_ends_of_one_name_are_collected_as_quickly_as_those_of_many_names() -> None:
    """The measure is the same machine at the same moment; a search for each takes many times as long."""
    seconds = []
    for names in (4000, 1):
        driver = Driver()
        driver.create("first")
        for number in range(4000):
            name = f"s{number % names}"
            driver.send(Create("b", name, "text/plain"), Delete("b", name))
        driver.now += SECOND
        began_at = time.thread_time()
        driver.do(Collect(driver.now, 0))
        seconds.append(time.thread_time() - began_at)
        assert not driver.state.deleted.incarnations
    assert seconds[1] < 5 * seconds[0], seconds


def test_the_blob_of_an_ended_stream_outlives_what_is_kept_of_it(driver: Driver) -> None:
    driver.do(replace(publication("s", 6, "blob"), record=0))
    driver.do(Delete("b", "s"))
    driver.do(Collect(driver.now, driver.state.position))
    assert "blobs/blob" in driver.state.stored.replaced
    assert isinstance(driver.do(Undelete("b", "s")), Undeleted)
    driver.do(Collect(driver.now + 1, driver.state.position))
    assert driver.state.blobs == {"blob": 1}


def test_a_trimmed_stream_tells_since_when_it_begins_where_it_does(driver: Driver) -> None:
    driver.do(replace(publication("s", 5), record=0))
    stream, trimmed_at = driver.stream("s"), driver.now
    assert stream.beginning_before(trimmed_at) == 0
    assert stream.beginning_before(trimmed_at + 1) == 5
    driver.now += 7200 * SECOND
    driver.do(replace(publication("s", 6), record=0))
    assert driver.stream("s").beginning_before(trimmed_at + 1) == 5
    assert driver.stream("s").beginning_before(driver.now + 1) == 6
