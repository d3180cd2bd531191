"""A log whose tail must be asked for: one call serves all who wait, and a request asks only once."""

import asyncio
import logging

import pytest
from tests.engine.driving import (
    BEGIN,
    Answers,
    RemoteLog,
    a_while,
    append,
    content,
    create,
    decided,
    running,
    until,
)

from ursula.engine.failures import NotCurrent, Unavailable
from ursula.engine.group import group as group_module
from ursula.log.interface import LogUnavailable
from ursula.model.codec import entry as entries
from ursula.model.commands import Delete
from ursula.model.outcomes import Appended, Created, Ended, Refused

pytestmark = pytest.mark.anyio


async def test_a_refusal_is_answered_after_one_call() -> None:
    log = RemoteLog()
    async with running(log) as group:
        assert isinstance(await decided(group, create()), Created)
        before = log.tail_calls
        assert not group.is_current
        refused = await decided(group, append(b"a", name="absent"))
        assert isinstance(refused, Refused)
        assert refused.code == "stream_not_found"
        assert log.tail_calls == before + 1


async def test_a_write_does_not_ask() -> None:
    log = RemoteLog()
    async with running(log) as group:
        before = log.tail_calls
        await decided(group, create())
        await decided(group, append(b"a"))
        assert content(group) == b"a"
        assert log.tail_calls == before


async def test_all_who_wait_when_a_call_begins_share_it_and_later_ones_share_the_next() -> None:
    log = RemoteLog()
    async with running(log) as group:
        before = log.tail_calls
        log.hold_tail()
        answers = Answers(group)
        answers.propose(append(b"a", name="absent"))
        answers.propose(append(b"b", name="absent"))
        readers = [asyncio.create_task(group.current()) for _ in range(3)]
        await a_while()
        assert log.tail_calls == before + 1
        late = [asyncio.create_task(group.current()) for _ in range(3)]
        answers.propose(append(b"c", name="absent"))
        await a_while()
        assert log.tail_calls == before + 1
        assert not any(reader.done() for reader in (*readers, *late))
        log.answer_tail()
        await asyncio.gather(*readers, *late)
        assert all(isinstance(outcome, Refused) for outcome in await answers.settled())
        assert log.tail_calls == before + 2


async def test_what_another_node_was_acknowledged_counts_before_a_refusal() -> None:
    log = RemoteLog()
    async with running(log) as group:
        log.hold_tail()
        answers = Answers(group)
        answers.propose(append(b"a"))
        await a_while()
        assert answers.all == []
        await log.memory.append(entries.encode(2, BEGIN, [create()]))
        log.answer_tail()
        (outcome,) = await answers.settled()
        assert isinstance(outcome, Appended)
        assert content(group) == b"a"


async def test_a_read_waits_until_the_tail_is_applied() -> None:
    log = RemoteLog()
    async with running(log) as group:
        reading = asyncio.create_task(group.current())
        await log.memory.append(entries.encode(2, BEGIN, [create(), append(b"theirs")]))
        await reading
        assert content(group) == b"theirs"


async def test_several_refused_by_turns_are_decided_in_their_order() -> None:
    log = RemoteLog()
    async with running(log) as group:
        log.memory.hold()
        answers = Answers(group)
        answers.propose(create())
        await a_while()
        answers.propose(append(b"a", close=True))
        answers.propose(append(b"b"))
        answers.propose(Delete("b", "s"))
        answers.propose(append(b"c"))
        log.memory.let_go()
        created, appended, closed, ended, gone = await answers.settled()
        assert (type(created), type(appended), type(ended)) == (Created, Appended, Ended)
        assert isinstance(closed, Refused)
        assert closed.code == "stream_closed"
        assert isinstance(gone, Refused)
        assert gone.code == "stream_not_found"


async def test_a_tail_that_cannot_be_found_out_makes_the_answer_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = RemoteLog()
    async with running(log) as group:
        problem = "the log does not report its tail"
        log.tail_failures = [OSError("no quorum"), OSError("a deadline passed")]
        with caplog.at_level(logging.WARNING):
            refused = await decided(group, append(b"a", name="absent"))
            assert refused == Unavailable(f"{problem}: no quorum")
            with pytest.raises(NotCurrent, match="a deadline passed"):
                await group.current()
            assert isinstance(await decided(group, append(b"a", name="absent")), Refused)
            await group.current()
        logged = [record.getMessage() for record in caplog.records]
        assert logged == [f"{problem}: no quorum", "the log reports its tail again"], "once for each outage"


async def test_a_group_starts_when_the_log_can_be_reached_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "LOG_RETRY_SECONDS", 0.001)
    log = RemoteLog()
    log.tail_failures = [LogUnavailable("no quorum")] * 2
    async with running(log) as group:
        assert group.recovered
        assert log.tail_calls == 3


async def test_whoever_waits_for_the_tail_is_answered_when_the_group_stops() -> None:
    log = RemoteLog()
    async with running(log) as group:
        log.hold_tail()
        answers = Answers(group)
        answers.propose(append(b"a", name="absent"))
        reading = asyncio.create_task(group.current())
        await a_while()
    assert await answers.settled() == [Unavailable("the server is stopping")]
    with pytest.raises(NotCurrent, match="the server is stopping"):
        await reading


async def test_a_reader_that_gives_up_disturbs_nobody() -> None:
    log = RemoteLog()
    async with running(log) as group:
        log.hold_tail()
        impatient, patient = [asyncio.create_task(group.current()) for _ in range(2)]
        await a_while()
        impatient.cancel()
        log.answer_tail()
        await patient
        await until(impatient.cancelled)
