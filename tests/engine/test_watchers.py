"""Those who wait for a stream: called once per entry that touched it, and by nothing else."""

import asyncio

import pytest
from tests.engine.driving import Answers, GatedLog, a_while, append, content, create, decided, running

from ursula.engine.group.group import Group
from ursula.engine.group.watchers import bucket_key
from ursula.model.commands import Delete
from ursula.model.outcomes import Created

pytestmark = pytest.mark.anyio


async def made(group: Group, name: str = "s") -> str:
    """Create a stream; its incarnation."""
    outcome = await decided(group, create(name))
    assert isinstance(outcome, Created)
    return outcome.incarnation


async def test_a_watcher_is_called_once_per_entry_however_many_appends_it_holds() -> None:
    log = GatedLog()
    async with running(log) as group:
        incarnation, seen = await made(group), list[bytes]()
        group.watchers.add(incarnation, lambda: seen.append(content(group)))
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"a"))
        await a_while()
        for _ in range(10):
            answers.propose(append(b"b"))
        log.let_go()
        await answers.settled()
        assert seen == [b"a", b"a" + b"b" * 10]


async def test_nobody_sees_an_append_before_the_log_has_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        incarnation, seen = await made(group), list[bytes]()
        group.watchers.add(incarnation, lambda: seen.append(content(group)))
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"a"))
        await a_while()
        assert seen == []
        assert content(group) == b""
        log.let_go()
        await answers.settled()
        assert seen == [b"a"]


async def test_a_watcher_is_not_called_for_other_streams_or_refused_appends() -> None:
    async with running(GatedLog()) as group:
        incarnation, calls = await made(group), list[int]()
        await made(group, "other")
        group.watchers.add(incarnation, lambda: calls.append(1))
        await decided(group, append(b"a", name="other"))
        await decided(group, append(b"a", seq=5))
        await a_while()
        assert calls == []


async def test_a_watcher_is_called_when_the_stream_is_closed_and_when_it_ends() -> None:
    async with running(GatedLog()) as group:
        incarnation, calls = await made(group), list[int]()
        group.watchers.add(incarnation, lambda: calls.append(1))
        await decided(group, append(b"", close=True))
        await a_while()
        assert len(calls) == 1
        await decided(group, Delete("b", "s"))
        await a_while()
        assert len(calls) == 2


async def test_a_removed_watcher_is_not_called() -> None:
    async with running(GatedLog()) as group:
        incarnation, calls = await made(group), list[str]()

        def first() -> None:
            calls.append("first")
            group.watchers.remove(incarnation, first)

        def second() -> None:
            calls.append("second")

        group.watchers.add(incarnation, first)
        group.watchers.add(incarnation, second)
        await decided(group, append(b"a"))
        await decided(group, append(b"b"))
        await a_while()
        assert calls == ["first", "second", "second"]
        group.watchers.remove(incarnation, second)
        assert not group.watchers
        assert len(group.watchers) == 0


async def test_a_watcher_that_fails_does_not_stop_the_group_or_the_others() -> None:
    async with running(GatedLog()) as group:
        incarnation, calls = await made(group), list[int]()

        def broken() -> None:
            raise RuntimeError("the client is gone")

        group.watchers.add(incarnation, broken)
        group.watchers.add(incarnation, lambda: calls.append(1))
        await decided(group, append(b"a"))
        await decided(group, append(b"b"))
        await a_while()
        assert len(calls) == 2


async def test_a_poller_of_a_bucket_that_was_just_told_is_told_with_the_watchers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(GatedLog()) as group:
        await made(group)
        told = asyncio.Event()
        group.watchers.add(bucket_key("b"), told.set)
        monkeypatch.setattr("ursula.engine.group.watchers.FEED_PAUSE_SECONDS", 0.02)
        assert group.watchers.may_tell("b")
        assert not group.watchers.may_tell("b")
        assert not told.is_set()
        await told.wait()
