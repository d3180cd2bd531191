"""The same log gives the same state, byte for byte: twice, in other processes, and from the middle."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.model import replay as replay_program
from tests.model.drawing import batched, logs
from tests.model.driving import Driver
from tests.model.replay import Entry, replay, result_of

from ursula.model.codec.entry import decode, encode
from ursula.model.commands import AnyCommand, CreateBucket
from ursula.model.dump import dump
from ursula.model.state import State
from ursula.model.stream import stream

bounded = settings(
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@bounded
@given(logs())
def test_applying_a_log_twice_gives_the_same_bytes(log: list[Entry]) -> None:
    assert result_of(log) == result_of(log)


@bounded
@given(logs(), st.data())
def test_going_on_from_the_middle_gives_the_same_bytes(log: list[Entry], data: st.DataObject) -> None:
    middle = data.draw(st.integers(0, len(log)))
    whole, halfway, other = State(0), State(0), State(0)
    all_outcomes = replay(log, whole)
    first_outcomes = replay(log[:middle], halfway)
    replay(log[:middle], other)
    assert dump(halfway) == dump(other)
    resumed = copy.deepcopy(halfway)
    assert dump(resumed) == dump(halfway)
    assert first_outcomes + replay(log[middle:], resumed) == all_outcomes
    assert dump(resumed) == dump(whole)
    assert dump(halfway) == dump(other)


@bounded
@given(logs())
def test_looking_at_every_command_first_makes_no_difference(log: list[Entry]) -> None:
    state = State(0)
    for position, payload in log:
        batch = decode(payload)
        for command in batch.commands:
            state.look(command)
        state.begin(position, batch.at)
        for index, command in enumerate(batch.commands):
            state.look(command)
            state.apply(command, index)
    expected = State(0)
    replay(log, expected)
    assert dump(state) == dump(expected)


@bounded
@given(logs())
def test_time_never_goes_backwards_when_the_proposers_do(log: list[Entry]) -> None:
    state, latest = State(0), 0
    for position, payload in log:
        latest = max(latest, decode(payload).at)
        replay([(position, payload)], state)
        assert state.at == latest
    for bucket in state.buckets.values():
        assert bucket.journal.ats.tolist() == sorted(bucket.journal.ats)
        assert bucket.journal.positions.tolist() == sorted(set(bucket.journal.positions))


@bounded
@given(batched(prove=True), st.integers(1, 3))
def test_how_much_that_was_trimmed_is_still_in_memory_makes_no_difference(
    log: list[tuple[int, int, list[AnyCommand]]], count: int
) -> None:
    entries = [(position, encode(1, at, commands)) for position, at, commands in log]
    expected = result_of(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "TRIMMED_AT_ONCE", count)
        assert result_of(entries) == expected


@settings(bounded, max_examples=4)
@given(st.lists(logs(), min_size=5, max_size=10))
def test_processes_with_other_hash_seeds_come_to_the_same_bytes(many: list[list[Entry]]) -> None:
    expected = [result_of(log) for log in many]
    for seed in ("0", "1", "12345"):
        assert in_another_process(many, seed) == expected


def in_another_process(many: list[list[Entry]], hash_seed: str) -> list[bytes]:
    """The results of these logs under another hash seed."""
    root = Path(__file__).parents[2]
    finished = subprocess.run(
        [sys.executable, str(replay_program.__file__)],
        input=msgspec.msgpack.encode(many),
        capture_output=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root / "src")},
    )
    return msgspec.msgpack.decode(finished.stdout, type=list[bytes])


def test_a_dump_does_not_show_in_which_order_a_dict_was_filled() -> None:
    driver = Driver()
    for bucket in ("b", "a", "c"):
        driver.do(CreateBucket(bucket))
    for name in ("s", "r", "t"):
        driver.create(name)
    reordered = copy.deepcopy(driver.state)
    reordered.buckets = dict(reversed(reordered.buckets.items()))
    reordered.buckets["b"].streams = dict(reversed(reordered.buckets["b"].streams.items()))
    assert dump(reordered) == dump(driver.state)


def test_a_dump_shows_every_change() -> None:
    driver = Driver()
    driver.create("s", b"abc")
    before = dump(driver.state)
    driver.state.find("b", "s").stream_seq = "x"  # type: ignore[union-attr]
    after = dump(driver.state)
    assert before != after
    driver.state.stored.flushed += 1
    assert dump(driver.state) != after
