"""What the state refuses is not logged, and is refused only when nothing under way could change that."""

import pytest
from tests.engine.driving import (
    Answers,
    GatedLog,
    a_while,
    append,
    content,
    create,
    decided,
    running,
)

from ursula.model.commands import Append, Create, Delete, ForkPoint, PlainAppend
from ursula.model.outcomes import Appended, Created, Refused

pytestmark = pytest.mark.anyio


def codes(outcomes: list[object]) -> list[str]:
    """Refusals by their code, anything else by its name."""
    return [o.code if isinstance(o, Refused) else type(o).__name__ for o in outcomes]


async def test_a_refused_command_is_not_logged() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        before = len(log.entries)
        answers = Answers(group)
        answers.propose(append(b"a", name="absent"))
        answers.propose(append(b"a", seq=3))
        answers.propose(Append("b", "s", (b"1",), "application/json"))
        assert codes(list(answers.all)) == [
            "stream_not_found",
            "producer_seq_conflict",
            "content_type_mismatch",
        ]
        await a_while()
        assert len(log.entries) == before


async def test_a_plain_append_joins_the_next_batch_only_if_nothing_speaks_against_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        group.hot_bytes_max = 10_000
        await decided(group, create())
        for command in (
            Create("b", "closed", "text/plain", close=True),
            Create("b", "json", "application/json"),
            create("with a window", ttl_seconds=60),
            create("gone"),
            Create("b", "fork", None, fork=ForkPoint("gone", 0)),
            Delete("b", "gone"),
        ):
            await decided(group, command)
        before = len(log.entries)
        outcomes: list[object] = []
        for name in ("closed", "json", "with a window", "gone", "missing"):
            plain = PlainAppend("b", name, (b"x",), "text/plain")
            assert not group.append_fast(plain, outcomes.append, 1), name
        assert not group.append_fast(PlainAppend("none", "s", (b"x",), "text/plain"), outcomes.append, 1)
        assert not group.append_fast(PlainAppend("b", "s", (b"x",), "text/plain"), outcomes.append, 10_001)
        await a_while()
        assert (outcomes, len(log.entries)) == ([], before)
        assert group.append_fast(PlainAppend("b", "s", (b"x",), "text/plain"), outcomes.append, 1)
        await a_while()
        assert codes(outcomes) == ["Appended"]
        assert content(group) == b"x"


async def test_what_changes_nothing_is_not_logged_either() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        await decided(group, append(b"a", seq=0))
        before = len(log.entries)
        assert isinstance(again := await decided(group, append(b"a", seq=0)), Appended)
        assert again.duplicate
        assert isinstance(existing := await decided(group, create()), Created)
        assert not existing.new
        assert len(log.entries) == before


async def test_a_producer_need_not_wait_for_its_answers() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.hold()
        answers = Answers(group)
        for seq in range(6):
            answers.propose(append(b"%d" % seq, seq=seq))
            if seq in (0, 3):
                await a_while()
        log.let_go()
        outcomes = await answers.settled()
        assert codes(list(outcomes)) == ["Appended"] * 6
        assert content(group) == b"012345"


async def test_an_append_to_a_stream_whose_creation_is_under_way_is_taken() -> None:
    log = GatedLog()
    async with running(log) as group:
        log.hold()
        answers = Answers(group)
        answers.propose(create())
        await a_while()
        answers.propose(append(b"a"))
        answers.propose(append(b"b"))
        log.let_go()
        assert codes(list(await answers.settled())) == ["Created", "Appended", "Appended"]
        assert content(group) == b"ab"


async def test_a_refusal_waits_for_what_was_proposed_before_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create("other"))
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"a", name="other"))
        refused = answers.propose(append(b"b", name="absent"))
        await a_while()
        assert refused not in answers.by_number
        log.let_go()
        assert codes(list(await answers.settled())) == ["Appended", "stream_not_found"]


async def test_a_refusal_does_not_wait_for_what_was_proposed_after_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        answers = Answers(group)
        log.hold()
        answers.propose(append(b"a"))
        refused = answers.propose(append(b"b", name="absent"))
        await a_while()
        answers.propose(append(b"c"))
        log.let_go()
        await a_while()
        assert answers.all.index(answers.by_number[refused]) == 1


async def test_each_of_several_refused_by_turns_sees_all_that_came_before_it() -> None:
    log = GatedLog()
    async with running(log) as group:
        log.hold()
        answers = Answers(group)
        answers.propose(create())
        await a_while()
        answers.propose(append(b"a", close=True))
        answers.propose(append(b"b"))
        answers.propose(Delete("b", "s"))
        answers.propose(append(b"c"))
        log.let_go()
        assert codes(list(await answers.settled())) == [
            "Created",
            "Appended",
            "stream_closed",
            "Ended",
            "stream_not_found",
        ]


async def test_the_same_request_twice_at_once_is_stored_once() -> None:
    log = GatedLog()
    async with running(log) as group:
        await decided(group, create())
        log.hold()
        answers = Answers(group)
        answers.propose(append(b"a", seq=0))
        answers.propose(append(b"a", seq=0))
        await a_while()
        answers.propose(append(b"a", seq=0))
        log.let_go()
        outcomes = await answers.settled()
        assert [o.duplicate for o in outcomes if isinstance(o, Appended)] == [False, True, True]
        assert content(group) == b"a"


async def test_bad_json_is_refused_after_everything_that_comes_before_it() -> None:
    async with running(GatedLog()) as group:
        await decided(group, create())
        answers = Answers(group)
        answers.propose(Append("b", "s", (), "text/plain"), unsplit="not JSON")
        answers.propose(Append("b", "absent", (), "text/plain"), unsplit="not JSON")
        assert codes(list(await answers.settled())) == ["invalid_json", "stream_not_found"]
