"""What a group tells of itself."""

import pytest
from tests.engine.driving import BASE, Answers, GatedLog, a_while, append, create, decided, running

from ursula.log.interface import AppendRetryable, AppendUnknown
from ursula.model.commands import Append

pytestmark = pytest.mark.anyio


async def test_what_was_written_is_counted_per_log_entry() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"1"))
        await a_while()
        for _ in range(3):
            answers.propose(append(b"22"))
        answers.propose(Append("b", "s", (b"a", b"b"), "text/plain"))
        assert group.status().pending_commands == 5
        log.let_go()
        await answers.settled()
        status = group.status()
        assert status.batch_commands.total == 6
        assert status.batch_commands.count == 3
        assert status.append_messages == 6
        assert status.append_bytes == 1 + 3 * 2 + 2
        assert status.batch_bytes.total == status.log_bytes
        assert (status.tail, status.applied, status.lag) == (BASE + 3, BASE + 3, 0)
        assert (status.pending_commands, status.stream_count, status.bucket_count) == (0, 1, 1)


async def test_more_than_a_batch_holds_is_counted_once() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.hold()
        answers = Answers(group)
        for _ in range(3000):
            answers.propose(append(b"x" * 1000))
        log.let_go()
        await answers.settled()
        status = group.status()
        assert status.append_messages == 3000
        assert status.append_bytes == 3_000_000
        assert status.batch_commands.total == 3001


async def test_entries_that_the_log_did_not_take_are_counted_by_what_is_known_of_them() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        written = group.status().append_messages
        log.failures = [AppendRetryable("full"), AppendUnknown("lost"), AppendRetryable("full")]
        for _ in range(3):
            await decided(group, append(b"x"))
        status = group.status()
        assert (status.entries_unavailable, status.entries_unknown) == (2, 1)
        assert status.append_messages == written
        assert status.pending_commands == 0
