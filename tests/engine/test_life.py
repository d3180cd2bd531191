"""How a group begins and ends: replay, stop, and what happens when it cannot go on."""

import asyncio

import pytest
from tests.engine.driving import (
    BASE,
    BEGIN,
    Answers,
    FakeClock,
    GatedLog,
    Stretches,
    a_while,
    append,
    content,
    create,
    decided,
    running,
    until,
)

from ursula.engine.failures import OutcomeUnknown, Unavailable
from ursula.engine.group.group import Group
from ursula.log.interface import LogDamaged
from ursula.log.memory import MemoryLog
from ursula.model.codec import entry as entries
from ursula.model.codec.entry import EntryUnreadable
from ursula.model.commands import AnyCommand
from ursula.model.outcomes import Appended, Refused

pytestmark = pytest.mark.anyio


async def filled(count: int, per_entry: int = 1000) -> MemoryLog:
    """A log with a stream of this many small messages."""
    log = MemoryLog()
    await log.append(entries.encode(1, BEGIN, [create()]))
    commands: list[AnyCommand] = [append(b"%06d" % number) for number in range(per_entry)]
    for _ in range(count // per_entry):
        await log.append(entries.encode(1, BEGIN, commands))
    return log


async def test_what_was_acknowledged_is_there_after_a_restart() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        await decided(group, append(b"a", seq=0))
    log._closed = False
    async with running(log) as group:
        assert content(group) == b"a"
        assert isinstance(again := await decided(group, append(b"a", seq=0)), Appended)
        assert again.duplicate
        await decided(group, append(b"b", seq=1))
        assert content(group) == b"ab"


async def test_replay_does_not_hold_the_loop() -> None:
    log = await filled(40_000, per_entry=100)
    group = Group(0, log, FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    stretches = Stretches()
    while not group.recovered:
        await asyncio.sleep(0)
        stretches.note()
    assert stretches.are_short()
    await group.stop()
    await task


async def test_replay_tells_how_far_it_is_and_takes_no_writes() -> None:
    log = await filled(20_000, per_entry=100)
    group = Group(0, log, FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    seen = []
    while not group.recovered:
        seen.append(group.progress)
        answers = Answers(group)
        answers.propose(append(b"x"))
        if group.replay_target > BASE and not group.recovered:
            assert answers.all == [Unavailable("the log is being replayed")]
        await asyncio.sleep(0)
    assert seen == sorted(seen)
    assert any(0 < progress < 1 for progress in seen)
    assert group.progress == 1.0
    assert len(content(group)) == 6 * 20_000
    await group.stop()
    await task


async def test_stop_finishes_what_was_proposed() -> None:
    log = GatedLog()
    group = Group(0, log, FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    await until(lambda: group.recovered)
    await decided(group, create())
    answers = Answers(group)
    log.hold()
    for number in range(3):
        answers.propose(append(b"%d" % number, seq=number))
        await a_while()
    stopping = asyncio.create_task(group.stop())
    await a_while()
    assert not stopping.done()
    late = answers.propose(append(b"late"))
    assert answers.by_number[late] == Unavailable("the server is stopping")
    log.let_go()
    async with asyncio.timeout(60):
        await stopping
        await task
    assert [type(outcome) for outcome in await answers.settled()][:3] == [Appended] * 3
    log._closed = False
    async with running(log) as again:
        assert content(again) == b"012"


async def test_stop_during_replay_ends_at_once() -> None:
    group = Group(0, await filled(100_000), FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    await until(lambda: group.applied > BASE)
    assert not group.recovered
    async with asyncio.timeout(60):
        await group.stop()
        await task
    assert not group.recovered, "it went on to the end"


async def test_an_entry_of_another_version_stops_the_group_and_names_both_versions() -> None:
    log = MemoryLog()
    payload = bytearray(entries.encode(1, BEGIN, [create()]))
    assert payload[1] == entries.ENTRY_VERSION
    payload[1] += 1
    await log.append(bytes(payload))
    group = Group(0, log, FakeClock(), BASE)
    with pytest.raises(EntryUnreadable) as caught:
        await group.run()
    assert f"version {entries.ENTRY_VERSION + 1}" in str(caught.value)
    assert f"version {entries.ENTRY_VERSION}" in str(caught.value)
    await group.stop()


async def test_damage_found_during_replay_stops_the_group() -> None:
    class DamagedLog(MemoryLog):
        def _open_stored(self, after: int):  # type: ignore[no-untyped-def]
            async def stored() -> list[object]:
                raise LogDamaged("file", "byte 7", "a record is damaged", "Restore it.")

            return stored

    log = DamagedLog()
    await log.append(entries.encode(1, BEGIN, [create()]))
    group = Group(0, log, FakeClock(), BASE)
    with pytest.raises(LogDamaged):
        await group.run()
    assert not group.recovered
    await group.stop()


async def test_a_group_that_cannot_apply_answers_everyone_and_can_be_stopped() -> None:
    log = GatedLog()
    group = Group(0, log, FakeClock(), BASE)
    task = asyncio.create_task(group.run())
    await until(lambda: group.recovered)
    await decided(group, create())

    def broken(position: int, at: int) -> None:
        raise RuntimeError("a bug")

    answers = Answers(group)
    log.hold()
    in_flight = answers.propose(append(b"a"))
    await a_while()
    gathered = answers.propose(append(b"b"))
    group.state.begin = broken  # type: ignore[method-assign]
    log.let_go()
    with pytest.raises(RuntimeError, match="a bug"):
        await task
    await answers.settled()
    assert isinstance(answers.by_number[in_flight], OutcomeUnknown)
    assert isinstance(answers.by_number[gathered], OutcomeUnknown | Unavailable)
    refused = answers.propose(append(b"c"))
    assert isinstance(answers.by_number[refused], Unavailable)
    async with asyncio.timeout(60):
        await group.stop()


async def test_reads_wait_until_what_the_log_acknowledged_is_applied() -> None:
    async with running(MemoryLog()) as group:
        await decided(group, create())
        await group.log.append(entries.encode(7, BEGIN, [append(b"from elsewhere")]))
        assert not group.is_current
        await group.current()
        assert content(group) == b"from elsewhere"
        assert group.is_current


async def test_a_refusal_waits_for_what_the_log_acknowledged() -> None:
    async with running(MemoryLog()) as group:
        await group.log.append(entries.encode(7, BEGIN, [create()]))
        assert isinstance(group.describe("b", "s"), Refused)
        assert isinstance(await decided(group, append(b"a")), Appended)
