"""Only `apply` changes what is decided; only residency changes what is in memory.

A random log is applied, and between its entries everything that the store has is evicted and parked, a little
at a time. No step of that may show in what is decided, and no command may evict or park.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.model.drawing import batched
from tests.model.driving import Driver
from tests.model.storing import all_rows, cut, flushed

from ursula.model import residency
from ursula.model.bucket import Bucket
from ursula.model.checkpoint.checkpoint import group_row, row_of
from ursula.model.commands import AnyCommand
from ursula.model.dump import dump
from ursula.model.state import State
from ursula.model.store_view.dirty_rows import RowKind
from ursula.model.stream import stream as stream_module
from ursula.model.stream.stream import Stream

bounded = settings(
    max_examples=80,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

POSITIONS_SKIPPED_MAX = 3
"""How far apart two entries of a drawn log are at most."""

Log = list[tuple[int, int, list[AnyCommand]]]


def decided(state: State) -> tuple[Any, ...]:
    """Everything that commands have decided: the state as a whole, as rows, and what is yet to be stored."""
    streams = [stream for bucket in state.buckets.values() for stream in bucket.streams.values()]
    encoded = [stream.encoded for stream in streams]
    dirty = state.dirty_rows
    found = (
        dump(state),
        group_row(state),
        sorted(all_rows(state)),
        (state.cut, list(dirty.open), [(cut, list(keys)) for cut, keys in dirty.sealed]),
        [(cut, [name for name, _ in parts]) for cut, parts in state.sealed_parts],
    )
    for stream, row in zip(streams, encoded, strict=True):
        stream.encoded = row  # to look at it leaves fresh rows behind, which would hide stale ones
    return found


def steps(state: State) -> Iterator[None]:
    """Evict and park everything that may be, one step at a time, as the engine does after a flush."""
    cut, keys, parts = state.residency.take_evictable()
    for key in list(keys):
        state.residency.memory_of(key, 0, cut)
        yield
    yield from state.residency.evict_trimmed()
    yield
    yield from state.residency.evict_journals(parts)
    yield
    yield from state.residency.evict(keys, cut)
    yield
    yield from state.residency.park_unused()


class Memory:
    """What a state has in memory: which streams are objects, and from which offset on they have messages."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._starts: dict[Stream, int] = {
            stream: stream.messages.start
            for bucket in state.buckets.values()
            for stream in bucket.streams.values()
        }
        self._parked = self._all_parked()

    def _all_parked(self) -> set[tuple[str, str]]:
        return {(bucket.name, name) for bucket in self._state.buckets.values() for name in bucket.parked}

    def check(self) -> None:
        """Nothing was parked since, and only messages that were trimmed were dropped."""
        assert self._all_parked() <= self._parked
        for stream, start in self._starts.items():
            assert stream.messages.start <= max(start, stream.earliest)


@bounded
@given(batched(16, prove=True), st.lists(st.booleans(), min_size=16, max_size=16))
def test_only_apply_decides_and_only_residency_evicts(log: Log, evictions: list[bool]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residency, "DROPPED_AT_ONCE", 1)
        patch.setattr(stream_module, "TRIMMED_AT_ONCE", 1)
        state = State(0)
        for (position, at, commands), evicts in zip(log, evictions, strict=False):
            if position - state.position == POSITIONS_SKIPPED_MAX:  # room for a flush between the two
                cut(state)
                all_rows(state)  # which leaves encoded rows with their streams
                send(state, [flushed(state)], state.position + 1, state.at)
            if evicts:
                check_steps(state)
            send(state, commands, position, at)


def send(state: State, commands: list[AnyCommand], position: int, at: int) -> None:
    """Apply an entry; no command evicts or parks."""
    state.begin(position, at)
    for index, command in enumerate(commands):
        memory = Memory(state)
        state.apply(command, index)
        memory.check()


def check_steps(state: State) -> None:
    """No step changes what is decided."""
    state.make_cut()
    before = decided(state)
    for _ in steps(state):
        assert decided(state) == before
    assert decided(state) == before


def test_the_steps_do_evict_and_park() -> None:
    """Otherwise the test above would prove nothing."""
    driver = Driver()
    for name in ("s", "t"):
        driver.create(name, b"abc", b"de")
    cut(driver.state)
    driver.do(flushed(driver.state))
    driver.append("t", b"f")
    before = decided(driver.state)
    assert len(list(steps(driver.state))) > 4
    assert decided(driver.state) == before
    bucket = driver.state.buckets["b"]
    assert list(bucket.parked) == ["s"]
    assert bucket.streams["t"].messages.payloads == [b"f"]


def drop_too_much(stream: Stream, *arguments: Any) -> bool:
    """An eviction that moves the tail."""
    stream.tail += 1
    return True


def trim_too_much(stream: Stream) -> bool:
    """An eviction that moves the beginning."""
    stream.earliest += 1
    return True


def lose(bucket: Bucket, stream: Stream) -> None:
    """Parking that keeps no row."""
    bucket.streams.pop(stream.name, None)
    bucket.parked.pop(stream.name, None)


def keep_an_old_row(bucket: Bucket, stream: Stream) -> None:
    """Parking that keeps whatever row is there."""
    del bucket.streams[stream.name]
    bucket.parked[stream.name] = b"" if stream.encoded is None else stream.encoded[1]


@pytest.mark.parametrize(
    ("owner", "method", "broken"),
    [
        (Stream, "drop_stored", drop_too_much),
        (Stream, "drop_trimmed", trim_too_much),
        (Bucket, "park", lose),
        (Bucket, "park", keep_an_old_row),
    ],
)
def test_a_step_that_changes_what_is_decided_is_noticed(
    owner: type, method: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    driver.create("s", b"abc", b"de")
    row_of(driver.state, (RowKind.STREAM, "b", "s"))
    driver.publish("s", 3)
    cut(driver.state)
    driver.do(flushed(driver.state))
    driver.state.residency.note_trimmed("b", "s")
    monkeypatch.setattr(owner, method, broken)
    before = decided(driver.state)
    assert any(decided(driver.state) != before for _ in steps(driver.state))
