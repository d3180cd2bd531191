"""The capture of a cut: rows as they were at it, whatever happens while it is taken."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.model.drawing import batched
from tests.model.driving import Driver
from tests.model.storing import cut, flush, flushed

from ursula.model import ordered
from ursula.model.checkpoint.checkpoint import all_keys, row_of
from ursula.model.commands import AnyCommand, Delete, FlushBegin
from ursula.model.deleted import DeletedStream
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import LARGE_ROW_BYTES, Key, RowKind, RowSnapshot

bounded = settings(
    max_examples=80,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

Log = list[tuple[int, int, list[AnyCommand]]]


def begin(state: State, is_base: bool = False) -> RowSnapshot:
    """Begin to capture what changed, or everything."""
    everything = all_keys(state) if is_base else None
    return state.dirty_rows.begin_capture(lambda key: row_of(state, key), everything)


def finish(state: State, capture: RowSnapshot) -> dict[Key, bytes | None]:
    """The rest of it at once."""
    while not capture.is_done:
        capture.step(3)
    state.dirty_rows.end_capture()
    return dict(capture.rows)


@bounded
@given(batched(16), st.booleans(), st.sampled_from([1, 2, 256]), st.data())
def test_rows_are_captured_as_of_the_cut(
    log: Log, is_base: bool, names_at_once: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "NAMES_AT_ONCE", names_at_once)
        check_capture(log, is_base, data)


def check_capture(log: Log, is_base: bool, data: st.DataObject) -> None:
    """What is captured bit by bit, while more happens, is what there was at a cut in the middle."""
    state = State(0)
    capture: RowSnapshot | None = None
    expected: dict[Key, bytes | None] = {}
    middle = data.draw(st.integers(0, len(log) - 1))
    for number, (position, at, commands) in enumerate(log):
        state.begin(position, at)
        for index, command in enumerate([*commands, FlushBegin(1)] if number == middle else commands):
            if capture is not None:
                capture.step(data.draw(st.integers(0, 2)))
            state.apply(command, index)
        if number == middle:
            state.make_cut()
            keys = (
                all_keys(state) if is_base else (key for _, keys in state.dirty_rows.sealed for key in keys)
            )
            expected = {key: row_of(state, key) for key in keys}
            capture = begin(state, is_base)
    assert capture is not None
    assert finish(state, capture) == expected
    assert all(expected[key] == row for key, row in capture.rows)


def test_what_is_gone_at_the_cut_is_a_tombstone_among_the_changes_and_nothing_in_a_base() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    driver.create("t")
    flush(driver.state)
    driver.do(Delete("b", "s"))
    cut(driver.state)
    key = (RowKind.STREAM, "b", "s")
    assert finish(driver.state, begin(driver.state))[key] is None
    assert key not in finish(driver.state, begin(driver.state, is_base=True))


@pytest.mark.parametrize("is_base", [False, True])
def test_what_goes_while_it_is_captured_was_there_at_the_cut(is_base: bool) -> None:
    driver = Driver()
    driver.create("s", b"abc")
    cut(driver.state)
    key = (RowKind.STREAM, "b", "s")
    row = row_of(driver.state, key)
    capture = begin(driver.state, is_base)
    driver.do(Delete("b", "s"))
    assert finish(driver.state, capture)[key] == row


def test_what_comes_while_it_is_captured_is_not_in_it() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    cut(driver.state)
    capture = begin(driver.state, is_base=True)
    driver.create("t")
    assert (RowKind.STREAM, "b", "t") not in finish(driver.state, capture)


def test_a_change_after_another_cut_does_not_disturb_a_capture() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    cut(driver.state)
    key = (RowKind.STREAM, "b", "s")
    row = row_of(driver.state, key)
    capture = begin(driver.state)
    driver.append("s", b"de")
    cut(driver.state)
    driver.append("s", b"f")
    assert finish(driver.state, capture)[key] == row


def test_changes_are_those_since_the_flushed_position_not_since_the_last_attempt() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    flush(driver.state)
    driver.create("t")
    cut(driver.state)
    driver.create("u")
    cut(driver.state)
    streams = {key[2] for key in finish(driver.state, begin(driver.state)) if key[0] == RowKind.STREAM}
    assert streams == {"t", "u"}
    driver.do(flushed(driver.state))
    cut(driver.state)
    assert not [key for key in finish(driver.state, begin(driver.state)) if key[0] == RowKind.STREAM]


def test_large_rows_are_captured_one_by_one() -> None:
    driver = Driver()
    for name in ("r", "s", "t"):
        driver.create(name)
        tombstone = DeletedStream(("b", name), f"0-0-{name}", driver.now, bytes(LARGE_ROW_BYTES))
        driver.state.deleted.add(tombstone)
        driver.state.dirty_rows.note((RowKind.GRAVE, "b", name))
    cut(driver.state)
    capture = begin(driver.state)
    counts = []
    while not capture.is_done:
        capture.step(100)
        counts.append(sum(key[0] == RowKind.GRAVE for key, _ in capture.rows))
    assert counts == [1, 2, 3, 3]
