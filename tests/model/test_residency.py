"""Only `apply` changes what is decided; only residency changes what is in memory.

A random log is applied, and between its entries everything that the store has is evicted and parked, a little
at a time. No step of that may show in what is decided, and no command may evict or park. The second half is
also tested command by command, in a state in which much may be evicted.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.model.drawing import batched
from tests.model.driving import SECOND, Driver, publication
from tests.model.storing import all_rows, cut, flush, flushed, segment

from ursula.model import residency
from ursula.model.bucket import Bucket
from ursula.model.checkpoint.checkpoint import group_row, row_of
from ursula.model.commands import (
    AnyCommand,
    Append,
    Collect,
    Create,
    CreateBucket,
    Delete,
    DeleteBucket,
    Expire,
    FlushBegin,
    ForkPoint,
    IngestBegin,
    IngestRow,
    IngestRows,
    Merge,
    PlainAppend,
    Producer,
    Renew,
    RequestFlush,
    SetAttributes,
    Trim,
    Undelete,
)
from ursula.model.dump import dump
from ursula.model.outcomes import AnyOutcome, Ignored, Refused
from ursula.model.state import CHANGE, State
from ursula.model.store_view.dirty_rows import RowKind
from ursula.model.stream import stream as stream_module
from ursula.model.stream.stream import Stream

bounded = settings(
    max_examples=80,
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
    """Evict and park everything that may be, one step at a time, as the engine does after a flush.

    Only some streams are measured, since a stream that is measured forgets its encoded row.
    """
    cut, keys, parts = state.residency.take_evictable()
    for key in keys[::2]:
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
    """What a state has in memory: streams and their messages, also of deleted streams, and journals."""

    def __init__(self, state: State) -> None:
        self._state = state
        streams = [stream for bucket in state.buckets.values() for stream in bucket.streams.values()]
        ended = [tombstone.stream for tombstone in state.deleted.incarnations.values()]
        self._starts = {stream: stream.messages.start for stream in (*streams, *ended) if stream is not None}
        self._trimmed = set(state.residency.trimmed)
        self._parked = self._all_parked()
        self._journals = [
            (bucket, part, len(part.streams))
            for bucket in state.buckets.values()
            for part in bucket.all_parts()
            if len(part)
        ]
        self._journal_bytes = state.gauge.count

    def _all_parked(self) -> set[tuple[str, str]]:
        return {(bucket.name, name) for bucket in self._state.buckets.values() for name in bucket.parked}

    def check(self) -> None:
        """Nothing was parked or evicted since, except for messages that were trimmed since."""
        state = self._state
        assert self._all_parked() <= self._parked
        assert self._trimmed <= state.residency.trimmed.keys()
        for stream, start in self._starts.items():
            assert stream.messages.start <= max(start, stream.earliest)
        for bucket, part, rows in self._journals:
            assert any(part is other for other in bucket.all_parts())
            assert len(part.streams) >= rows
        assert state.gauge.count >= self._journal_bytes


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


@pytest.mark.parametrize("park_unused", [False, True])
def test_a_row_that_is_older_than_its_stream_is_not_parked(park_unused: bool) -> None:
    """A flush of another process, or one that is replayed, encodes no rows here."""
    driver = Driver()
    driver.create("s", b"abc")
    flush(driver.state)
    driver.do(SetAttributes("b", "s", b'{"title":"new"}'))
    assert driver.stream("s").encoded is not None, "the row from which it was unparked"
    cut(driver.state)
    driver.do(flushed(driver.state))
    before = decided(driver.state)
    residency = driver.state.residency
    end, keys, _ = residency.take_evictable()
    for _ in residency.park_unused() if park_unused else residency.evict(keys, end):
        pass
    assert list(driver.state.buckets["b"].parked) == ["s"]
    assert decided(driver.state) == before
    assert driver.stream("s").attributes == b'{"title":"new"}'


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


@pytest.fixture
def evictable(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A state with something of every kind that residency would evict or park.

    `idle` was parked and is unparked; the messages of `stored` and of `gone`, which is deleted, are in the
    store and in memory; `trimmed` still has messages that were trimmed; `hot` is in no segment yet.
    """
    monkeypatch.setattr(stream_module, "TRIMMED_AT_ONCE", 1)
    driver = Driver()
    make(driver, "idle")
    flush(driver.state)
    for name in ("stored", "gone", "trimmed"):
        make(driver, name)
    driver.do(Delete("b", "gone"))
    driver.publish("trimmed", 6)
    driver.do(CreateBucket("empty"))
    driver.do(IngestBegin("b", "job", 1, ("staged",), True, None, False, driver.now))
    cut(driver.state)
    driver.do(flushed(driver.state))
    make(driver, "hot")
    cut(driver.state)
    assert driver.stream("idle").is_idle
    return driver


def make(driver: Driver, name: str) -> None:
    """Make a stream with a TTL, three messages, and a snapshot after the first."""
    driver.do(Create("b", name, "text/plain", (b"abc",), ttl_seconds=60, make_bucket=True))
    for message in (b"de", b"f"):
        driver.append(name, message)
    driver.publish(name, 3, f"blob-{name}", trim=False)


def of_stream(driver: Driver, kind: type, name: str) -> AnyCommand | None:
    """A command of this kind that changes a stream of `evictable`; None if the kind is not about one."""
    incarnation = driver.stream(name).incarnation
    commands: list[AnyCommand] = [
        Create("b", "new", None, (b"x",), fork=ForkPoint(name)),
        Append("b", name, (b"x",), "text/plain", producer=Producer("p", 0, 0)),
        PlainAppend("b", name, (b"x",), "text/plain"),
        Delete("b", name),
        Expire("b", name, incarnation, driver.stream(name).deadline or 0),
        Renew("b", name, incarnation, driver.now + SECOND),
        SetAttributes("b", name, b'{"title":"new"}'),
        replace(publication(name, 5), record=0),
        Trim("b", name, 3, record=0),
        IngestRows("b", "job", 1, 0, 0, (IngestRow(name, (b"x",), "text/plain"),), True),
    ]
    return next((command for command in commands if type(command) is kind), None)


def of_other(driver: Driver, kind: type) -> AnyCommand | None:
    """A command of this kind that changes something else in `evictable`; None if there is no such kind."""
    first, second = driver.state.segments
    commands: list[AnyCommand] = [
        CreateBucket("new"),
        DeleteBucket("empty"),
        Undelete("b", "gone"),
        IngestBegin("b", "other job", 1, ("staged",), True, None, False, driver.now),
        FlushBegin(1),
        flushed(driver.state),
        Merge((first.key, second.key), segment(first.first, second.last), driver.now),
        Collect(driver.now + SECOND, driver.state.position),
        RequestFlush(base=True),
    ]
    return next((command for command in commands if type(command) is kind), None)


def command_of(driver: Driver, kind: type, name: str) -> AnyCommand:
    command = of_stream(driver, kind, name) or of_other(driver, kind)
    assert command is not None, f"add an example of {kind.__name__} above"
    return command


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", ["idle", "stored", "hot"])
@pytest.mark.parametrize("kind", CHANGE)
def test_no_command_evicts_or_parks(kind: type, name: str, fast: bool, evictable: Driver) -> None:
    state = evictable.state
    command = command_of(evictable, kind, name)
    state.begin(state.position + 1, state.at)
    memory = Memory(state)
    outcome = state.apply_all([command])[0] if fast else state.apply(command, 0)
    assert not isinstance(outcome, Refused | Ignored)
    memory.check()


def evict_messages(state: State) -> None:
    for stream in state.buckets["b"].streams.values():
        stream.drop_stored(state.stored_to)


def park_streams(state: State) -> None:
    for stream in list(state.buckets["b"].streams.values()):
        state.buckets["b"].park(stream)


def evict_deleted(state: State) -> None:
    state.deleted.drop_stored("b", "gone", state.stored_to)


def evict_journals(state: State) -> None:
    _, _, parts = state.residency.take_evictable()
    for _ in state.residency.evict_journals(parts):
        pass


def evict_trimmed(state: State) -> None:
    for _ in state.residency.evict_trimmed():
        pass


@pytest.mark.parametrize(
    "evict", [evict_messages, park_streams, evict_deleted, evict_journals, evict_trimmed]
)
def test_a_command_that_evicts_or_parks_is_noticed(
    evict: Callable[[State], None], evictable: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would prove nothing."""

    change = CHANGE[Renew]

    def broken(state: State, *arguments: Any) -> AnyOutcome:
        outcome = change(state, *arguments)
        evict(state)
        return outcome

    monkeypatch.setitem(CHANGE, Renew, broken)
    memory = Memory(evictable.state)
    evictable.do(command_of(evictable, Renew, "hot"))
    with pytest.raises(AssertionError):
        memory.check()
