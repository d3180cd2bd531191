"""Batches: what becomes one entry, what does not, and what comes of it when the log fails."""

import pytest
from tests.engine.driving import Answers, GatedLog, a_while, append, content, create, decided, running

from ursula.engine.failures import OutcomeUnknown, Unavailable
from ursula.engine.group.batching import BATCH_BYTES_MAX, BATCH_COMMANDS_MAX
from ursula.log.interface import AppendRefused, AppendRetryable, AppendUnknown
from ursula.model.outcomes import Appended, Refused

pytestmark = pytest.mark.anyio


async def test_a_lone_append_is_written_at_once() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        await decided(group, append(b"a"))
        assert [len(entry) for entry in log.entries] == [1, 1]


async def test_what_comes_while_one_entry_is_written_becomes_the_next() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        answers = Answers(group)
        log.hold()
        answers.propose(append(b"first "))
        await a_while()
        for number in range(100):
            answers.propose(append(b"%d " % number))
        await a_while()
        assert answers.all == []
        log.let_go()
        outcomes = await answers.settled()
        assert all(isinstance(outcome, Appended) for outcome in outcomes)
        assert [len(entry) for entry in log.entries] == [1, 1, 100]
        assert content(group) == b"first " + b"".join(b"%d " % number for number in range(100))


async def test_the_outcomes_of_one_entry_come_in_the_order_of_its_commands() -> None:
    async with running(GatedLog()) as group:
        await decided(group, create())
        answers = Answers(group)
        for number in range(5):
            answers.propose(append(b"x" * (number + 1)))
        outcomes = await answers.settled()
        assert outcomes == answers.all
        assert [outcome.tail for outcome in outcomes if isinstance(outcome, Appended)] == [
            1,
            3,
            6,
            10,
            15,
        ]


async def test_a_batch_begins_when_half_of_those_that_wrote_lately_are_here() -> None:
    """So the log writes one half of them while the loop still reads the requests of the other."""
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        for _ in range(6):
            answers = Answers(group)
            for _ in range(64):
                answers.propose(append(b"x"))
            await answers.settled()
        assert [len(entry) for entry in log.entries[-4:]] == [32, 32, 32, 32]
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"x"))
        await a_while()
        assert [len(entry) for entry in log.entries[-1:]] == [1], "few are not kept waiting for more"
        log.let_go()
        await answers.settled()


async def test_an_entry_holds_at_most_1024_commands() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        answers = Answers(group)
        for _ in range(2 * BATCH_COMMANDS_MAX + 1):
            answers.propose(append(b"x"))
        await answers.settled()
        assert BATCH_COMMANDS_MAX == 1024
        assert [len(entry) for entry in log.entries[1:]] == [1, 1024, 1024]


async def test_an_entry_holds_at_most_a_mebibyte() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        answers = Answers(group)
        for _ in range(10):
            answers.propose(append(b"x" * (BATCH_BYTES_MAX // 4)))
        await answers.settled()
        assert [len(entry) for entry in log.entries[1:]] == [1, 4, 4, 1]


async def test_a_larger_command_goes_alone() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        answers = Answers(group)
        sizes = [1, 2, 3 * BATCH_BYTES_MAX, 5, 2 * BATCH_BYTES_MAX, 7, 8]
        for size in sizes:
            answers.propose(append(b"x" * size))
        await answers.settled()
        assert [len(entry) for entry in log.entries[1:]] == [1, 1, 1, 1, 1, 2]
        assert len(content(group)) == sum(sizes)


async def test_what_the_log_did_not_take_is_unavailable_and_leaves_nothing_behind() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.failures = [AppendRetryable("no room")] * 2
        answers = Answers(group)
        answers.propose(append(b"lost", seq=0))
        answers.propose(append(b"lost"))
        assert await answers.settled() == [Unavailable("no room")] * 2
        assert content(group) == b""
        assert isinstance(await decided(group, append(b"kept", seq=0)), Appended)
        assert content(group) == b"kept"


async def test_an_entry_that_the_log_rejects_for_good_is_refused_and_not_unavailable() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.failures = [AppendRefused("too large")]
        refused = await decided(group, append(b"a"))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message) == (
            "internal_error",
            "the log rejected the entry: too large",
        )
        assert group.log_problem is None, "the log itself is well"
        assert isinstance(await decided(group, append(b"b")), Appended)
        assert content(group) == b"b"


async def test_a_write_whose_fate_the_log_does_not_know_is_answered_so() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.failures = [AppendUnknown("half written")]
        assert await decided(group, append(b"a")) == OutcomeUnknown("half written")
        assert content(group) == b""


async def test_a_failed_entry_does_not_hold_up_those_behind_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"lost"))
        await a_while()
        answers.propose(append(b"kept"))
        log.failures = [AppendRetryable("once")]
        log.let_go()
        first, second = await answers.settled()
        assert isinstance(first, Unavailable)
        assert isinstance(second, Appended)
        assert content(group) == b"kept"


async def test_an_answer_that_fails_does_not_stop_the_others() -> None:
    async with running(GatedLog()) as group:
        await decided(group, create())

        def broken(outcome: object) -> None:
            raise RuntimeError("the client is gone")

        answers = Answers(group)
        group.propose(append(b"a"), broken, 1)
        answers.propose(append(b"b"))
        await answers.settled()
        group.propose(append(b"c", name="absent"), lambda outcome: None, 1)
        assert isinstance(await decided(group, append(b"d")), Appended)
        assert content(group) == b"abd"
