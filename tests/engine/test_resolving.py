"""Commands that refer to bytes in the store: whatever happens during the read, the caller gets an answer."""

import logging
from pathlib import Path

import pytest
from tests.engine.tidying import Tidied, tidied

from ursula.cold.objects.store import StoreUnavailable
from ursula.engine.failures import Failure, Unavailable
from ursula.engine.reads.cold_stream import ColdReads
from ursula.model.commands import Create, ForkPoint
from ursula.model.outcomes import AnyOutcome, Created

pytestmark = pytest.mark.anyio


async def fork(group: Tidied) -> AnyOutcome | Failure:
    """Fork a stream at an offset that only the store knows."""
    return await group.group.propose_and_wait(Create("b", "fork", None, fork=ForkPoint("s", 3)))


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let reads of the store fail."""

    async def record_at(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(ColdReads, "record_at", record_at)


async def flushed(group: Tidied) -> None:
    """A stream that is in the store alone."""
    await group.create("s")
    await group.append("s", b"one", b"two")
    await group.flush()


async def test_an_unexpected_error_is_logged_once_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidied(tmp_path) as group:
        await flushed(group)
        with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
            fail_with(patched, RuntimeError("a bug"))
            assert await fork(group) == Unavailable("the server failed; see its log")
        (record,) = caplog.records
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "a bug"
        assert isinstance(await fork(group), Created)


async def test_a_store_that_cannot_be_reached_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidied(tmp_path) as group:
        await flushed(group)
        with monkeypatch.context() as patched:
            fail_with(patched, StoreUnavailable("out of reach"))
            assert await fork(group) == Unavailable("out of reach")
        assert caplog.records == []
        assert isinstance(await fork(group), Created)


async def test_a_reply_that_fails_is_not_called_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replies: list[object] = []

    def broken(outcome: object) -> None:
        replies.append(outcome)
        raise RuntimeError("the client is gone")

    async with tidied(tmp_path) as group:
        await flushed(group)
        command = Create("b", "fork", None, fork=ForkPoint("s", 3))
        group.group.propose(command, broken)
        assert isinstance(await fork(group), Created)
        assert len(replies) == 1
