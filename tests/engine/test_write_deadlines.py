"""How long a request waits for a log that does not answer, and what it is told then."""

import asyncio

import pytest
from tests.engine.driving import BASE, Answers, FakeClock, GatedLog, RemoteLog, a_while, append, create, until

from ursula.engine.failures import NotCurrent, OutcomeUnknown, Unavailable
from ursula.engine.group.group import Group
from ursula.engine.group.log_writer import LogWriter
from ursula.engine.group.watermarks import Watermarks
from ursula.engine.group.write_deadlines import WriteDeadlines
from ursula.log.interface import Log
from ursula.model.outcomes import Appended, Created

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 10.0


class Waited:
    """A group whose deadlines are checked when a test says so, and a clock for them."""

    def __init__(self, log: Log) -> None:
        self.now = 0.0
        self.group = Group(0, log, FakeClock(), BASE)
        writer, watermarks = self.group._writer, self.group._watermarks
        assert isinstance(writer, LogWriter)
        assert isinstance(watermarks, Watermarks)
        self.deadlines = WriteDeadlines(writer, watermarks, WAIT_SECONDS, lambda: self.now)
        self.answers = Answers(self.group)

    def pass_seconds(self, seconds: int) -> None:
        """Let time pass, and check the deadlines every half second."""
        for _ in range(2 * seconds):
            self.now += 0.5
            self.deadlines.tick()

    async def __aenter__(self) -> "Waited":
        self._task = asyncio.create_task(self.group.run())
        await until(lambda: self.group.recovered)
        self.deadlines.tick()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.group.stop()
        await self._task


async def test_a_command_that_was_handed_to_the_log_is_unknown_and_may_be_applied_later() -> None:
    log = GatedLog()
    async with Waited(log) as waited:
        log.hold()
        waited.answers.propose(create())
        await a_while()
        waited.pass_seconds(9)
        assert waited.answers.all == []
        waited.pass_seconds(2)
        (outcome,) = waited.answers.all
        assert isinstance(outcome, OutcomeUnknown)
        log.let_go()
        await until(lambda: "b" in waited.group.state.buckets)
        assert len(waited.answers.all) == 1, "nobody is answered twice"


async def test_a_command_that_was_never_handed_to_the_log_is_certainly_not_written() -> None:
    log = GatedLog()
    async with Waited(log) as waited:
        log.hold()
        waited.answers.propose(create())
        await a_while()
        waited.pass_seconds(5)
        late = waited.answers.propose(create("other"))
        await a_while()
        waited.pass_seconds(6)
        assert [type(outcome) for outcome in waited.answers.all] == [OutcomeUnknown]
        waited.pass_seconds(5)
        assert isinstance(waited.answers.by_number[late], Unavailable)
        log.let_go()
        await until(lambda: "b" in waited.group.state.buckets)
        await a_while()
        assert waited.group.state.find("b", "other") is None
        third = waited.answers.propose(create("third"))
        await until(lambda: third in waited.answers.by_number)
        assert isinstance(waited.answers.by_number[third], Created)


async def test_only_the_commands_of_a_batch_whose_time_is_up_are_answered() -> None:
    log = GatedLog()
    async with Waited(log) as waited:
        answers = waited.answers
        answers.propose(create())
        await answers.settled()
        waited.pass_seconds(1)
        log.hold()
        first = answers.propose(append(b"a"))
        await a_while()
        waited.pass_seconds(4)
        second = answers.propose(append(b"b"))
        waited.pass_seconds(4)
        third = answers.propose(append(b"c"))
        log.let_go()
        log.hold()
        await until(lambda: first in answers.by_number)
        await until(lambda: len(log.entries[-1]) == 2)  # both are handed to the log together
        waited.pass_seconds(7)
        assert isinstance(answers.by_number[second], OutcomeUnknown)
        assert third not in answers.by_number
        log.let_go()
        await until(lambda: third in answers.by_number)
        assert isinstance(answers.by_number[third], Appended)
        assert len(answers.all) == 4, "nobody is answered twice"


async def test_a_request_that_waits_for_the_tail_is_unavailable() -> None:
    log = RemoteLog()
    async with Waited(log) as waited:
        log.hold_tail()
        reading = asyncio.create_task(waited.group.current())
        waited.answers.propose(append(b"a", name="absent"))
        await a_while()
        waited.group._watermarks.fail_since(float("inf"), Unavailable("too late"))
        with pytest.raises(NotCurrent, match="too late"):
            await reading
        assert waited.answers.all == [Unavailable("too late")]
        log.answer_tail()


async def test_the_time_of_a_request_that_waits_for_the_tail_is_limited_too() -> None:
    log = RemoteLog()
    group = Group(0, log, FakeClock(), BASE, write_wait_seconds=0.1)
    task = asyncio.create_task(group.run())
    await until(lambda: group.recovered)
    log.hold_tail()
    async with asyncio.timeout(30):
        with pytest.raises(NotCurrent, match=r"the log has not answered within 0\.1 s"):
            await group.current()
    log.answer_tail()
    await group.stop()
    await task


async def test_a_group_stops_although_its_log_does_not_answer() -> None:
    log = GatedLog()
    group = Group(0, log, FakeClock(), BASE, write_wait_seconds=0.1)
    task = asyncio.create_task(group.run())
    await until(lambda: group.recovered)
    log.hold()
    answers = Answers(group)
    answers.propose(create())
    await a_while()
    async with asyncio.timeout(30):
        await group.stop()
        await task
    (outcome,) = await answers.settled()
    assert isinstance(outcome, OutcomeUnknown)


async def test_a_reply_that_fails_or_proposes_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    log = GatedLog()
    async with Waited(log) as waited:
        log.hold()
        outcomes: list[object] = []

        def fail(outcome: object) -> None:
            raise RuntimeError("the client is gone")

        def propose_next(outcome: object) -> None:
            waited.group.propose(create("next"), outcomes.append)

        waited.group.propose(create("first"), fail)
        waited.group.propose(create("second"), propose_next)
        waited.group.propose(create("third"), outcomes.append)
        await a_while()
        waited.pass_seconds(11)
        assert "replying to a request failed" in caplog.text
        assert len(outcomes) == 1
        log.let_go()
        await until(lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1], Created)
