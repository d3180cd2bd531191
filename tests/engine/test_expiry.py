"""Streams that end by themselves, on a clock that moves when it is told to."""

import asyncio

import pytest
from tests.engine.driving import (
    BEGIN,
    SECOND,
    Answers,
    FakeClock,
    GatedLog,
    a_while,
    append,
    content,
    create,
    decided,
    running,
    until,
)

from ursula.engine.group import deadlines
from ursula.engine.group.group import Group
from ursula.log.interface import AppendRetryable
from ursula.model.commands import AnyCommand, Append, Create, Delete, DeleteBucket, Expire, Renew
from ursula.model.outcomes import Appended, BucketDeleted, Created, Ended, Refused

pytestmark = pytest.mark.anyio


def is_there(group: Group, name: str = "s") -> bool:
    """Whether a stream can be described."""
    return not isinstance(group.describe("b", name), Refused)


def logged(log: GatedLog, kind: type) -> list[AnyCommand]:
    """The commands of a kind that went into the log."""
    return [command for entry in log.entries for command in entry if isinstance(command, kind)]


def look(group: Group) -> None:
    """What the group's timer does; the timer itself follows the machine's clock."""
    group.expiry.tick()


async def test_a_stream_is_ended_by_a_logged_command_once_its_deadline_has_passed() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        assert isinstance(made := await decided(group, create(ttl_seconds=8)), Created)
        clock.pass_seconds(7.9)
        look(group)
        await a_while()
        assert is_there(group)
        clock.pass_seconds(0.2)
        look(group)
        await until(lambda: not is_there(group))
        assert logged(log, Expire) == [Expire("b", "s", made.incarnation, BEGIN + 8 * SECOND)]


async def test_a_repeated_append_renews_the_window_though_it_is_not_logged() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        assert isinstance(await decided(group, create(ttl_seconds=8)), Created)
        again = append(b"x", seq=0)
        assert isinstance(await decided(group, again), Appended)
        clock.pass_seconds(7)
        repeated = await decided(group, again)
        assert isinstance(repeated, Appended)
        assert repeated.duplicate
        clock.pass_seconds(2)
        look(group)
        await a_while()
        assert is_there(group)
        assert len(logged(log, Append)) == 1


async def test_the_timer_ends_a_stream_without_anyone_asking() -> None:
    clock = FakeClock()
    async with running(GatedLog(), clock) as group:
        await decided(group, Create("b", "s", None, expires_at=clock.now + SECOND // 50, make_bucket=True))
        clock.pass_seconds(0.02)
        async with asyncio.timeout(60):
            while is_there(group):
                await asyncio.sleep(0.005)


async def test_a_request_that_finds_a_stream_past_its_deadline_ends_it_first() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(9)
        assert group.is_overdue("b", "s")
        assert isinstance(outcome := await decided(group, append(b"late")), Refused)
        assert outcome.code == "stream_not_found"
        assert not group.is_overdue("b", "s")
        assert isinstance(again := await decided(group, create(ttl_seconds=8)), Created)
        assert again.new


async def test_a_write_moves_the_window() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        for _ in range(4):
            clock.pass_seconds(7)
            look(group)
            assert isinstance(await decided(group, append(b"a")), Appended)
        clock.pass_seconds(7.9)
        look(group)
        await a_while()
        assert is_there(group)
        clock.pass_seconds(0.2)
        look(group)
        await until(lambda: not is_there(group))
        assert logged(log, Renew) == []


async def test_a_read_soon_after_the_last_one_is_kept_in_memory_and_logged_before_the_deadline() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        assert isinstance(made := await decided(group, create(ttl_seconds=8)), Created)
        clock.pass_seconds(0.9)
        group.note_read("b", "s")
        await a_while()
        assert logged(log, Renew) == []
        clock.pass_seconds(6.0)
        look(group)
        await a_while()
        assert logged(log, Renew) == []
        clock.pass_seconds(0.2)
        look(group)
        await a_while()
        assert logged(log, Renew) == [Renew("b", "s", made.incarnation, BEGIN + SECOND * 9 // 10)]
        clock.pass_seconds(1.5)
        look(group)
        await a_while()
        assert is_there(group)
        clock.pass_seconds(0.4)
        look(group)
        await until(lambda: not is_there(group))


async def test_a_read_is_logged_at_once_after_an_eighth_of_the_window() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        assert isinstance(made := await decided(group, create(ttl_seconds=8)), Created)
        clock.pass_seconds(1)
        group.note_read("b", "s")
        await a_while()
        assert logged(log, Renew) == [Renew("b", "s", made.incarnation, BEGIN + SECOND)]
        clock.pass_seconds(0.5)
        for _ in range(100):
            group.note_read("b", "s")
        await a_while()
        assert len(logged(log, Renew)) == 1


async def test_a_read_in_the_last_moment_saves_the_stream() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(7.5)
        look(group)
        clock.pass_seconds(0.49)
        group.note_read("b", "s")
        clock.pass_seconds(0.1)
        look(group)
        await a_while()
        assert is_there(group)
        assert logged(log, Expire) == []


async def test_a_renewal_that_the_log_did_not_take_is_not_forgotten() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(6)
        log.failures = [AppendRetryable("no room")]
        group.note_read("b", "s")
        await a_while()
        clock.pass_seconds(3)
        assert not group.is_overdue("b", "s")
        look(group)
        await a_while()
        clock.pass_seconds(2)
        look(group)
        await a_while()
        assert is_there(group)
        assert logged(log, Expire) == []
        clock.pass_seconds(3.1)
        look(group)
        await until(lambda: not is_there(group))


async def test_an_end_that_the_log_did_not_take_is_tried_again() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(8)
        log.failures = [AppendRetryable("no room")]
        look(group)
        await a_while()
        assert is_there(group)
        clock.pass_seconds(1)
        look(group)
        await until(lambda: not is_there(group))


async def test_a_fixed_end_does_not_move() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, Create("b", "s", None, expires_at=clock.now + 8 * SECOND, make_bucket=True))
        clock.pass_seconds(7)
        group.note_read("b", "s")
        await a_while()
        assert logged(log, Renew) == []
        clock.pass_seconds(1)
        look(group)
        await until(lambda: not is_there(group))


async def test_an_end_that_was_overtaken_by_a_write_is_ignored() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(7.99)
        answers = Answers(group)
        log.hold()
        answers.propose(append(b"saved"))
        await a_while()
        clock.pass_seconds(0.02)
        look(group)
        log.let_go()
        await answers.settled()
        await a_while()
        assert logged(log, Expire)
        assert content(group) == b"saved"


async def test_lifetimes_survive_a_restart() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create("short", ttl_seconds=8))
        await decided(group, create("long", ttl_seconds=800))
    log._closed = False
    clock.pass_seconds(9)
    async with running(log, clock) as group:
        await until(lambda: not is_there(group, "short"))
        assert is_there(group, "long")


async def test_a_name_used_again_is_not_ended_by_the_deadline_of_the_one_before() -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await decided(group, create(ttl_seconds=8))
        clock.pass_seconds(8)
        look(group)
        await until(lambda: not is_there(group))
        await decided(group, create(ttl_seconds=80))
        clock.pass_seconds(9)
        look(group)
        await a_while()
        assert is_there(group)


MANY = 50


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many streams are looked at at once."""
    monkeypatch.setattr(deadlines, "CHECKS_AT_ONCE", 8)
    return 8


async def create_many(group: Group) -> list[str]:
    """Streams that all expire at the same moment."""
    names = [f"s{number:02d}" for number in range(MANY)]
    for name in names:
        assert isinstance(await decided(group, create(name, ttl_seconds=8)), Created)
    return names


async def test_very_many_streams_that_expire_at_one_moment_are_ended_some_at_a_time(few_looks: int) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        names = await create_many(group)
        clock.pass_seconds(9)
        look(group)
        await until(lambda: not any(is_there(group, name) for name in names))
        counts = [sum(isinstance(command, Expire) for command in entry) for entry in log.entries]
        assert 1 < max(counts) <= few_looks
        assert sum(counts) == MANY, "each is ended once"


async def test_the_next_are_not_proposed_before_the_last_are_decided(few_looks: int) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        names = await create_many(group)
        clock.pass_seconds(9)
        log.hold()
        for _ in range(5):
            look(group)
            await a_while()
        assert group.status().pending_commands == few_looks
        log.let_go()
        await until(lambda: not any(is_there(group, name) for name in names))


async def test_a_request_for_one_of_very_many_expired_streams_does_not_wait_for_the_others(
    few_looks: int,
) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        names = await create_many(group)
        clock.pass_seconds(9)
        log.hold()
        look(group)
        answers = Answers(group)
        answers.propose(append(b"late", names[-1]))
        log.let_go()
        assert [type(outcome) for outcome in await answers.settled()] == [Refused]
        assert sum(is_there(group, name) for name in names) >= MANY - 3 * few_looks


async def test_very_many_streams_that_have_expired_do_not_keep_a_bucket(few_looks: int) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        await create_many(group)
        clock.pass_seconds(9)
        assert isinstance(await decided(group, DeleteBucket("b")), BucketDeleted)
        assert len(logged(log, Expire)) == MANY


async def test_streams_that_ended_before_their_time_are_looked_at_some_at_a_time_too(few_looks: int) -> None:
    log, clock = GatedLog(), FakeClock()
    async with running(log, clock) as group:
        for name in await create_many(group):
            assert isinstance(await decided(group, Delete("b", name)), Ended)
        clock.pass_seconds(9)
        look(group)
        assert len(group.expiry.deadlines.heap) == MANY - few_looks
        assert isinstance(await decided(group, DeleteBucket("b")), BucketDeleted)
        await until(lambda: not group.expiry.deadlines.heap)
        assert logged(log, Expire) == []
