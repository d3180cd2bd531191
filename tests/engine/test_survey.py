"""Where the bytes are: right, also while streams come and go, and never in anyone's way."""

import asyncio

import pytest
from tests.engine.driving import BEGIN, Stretches

from ursula.engine.status.hot_bytes import (
    LARGEST_COUNT,
    HotBytesReport,
    HotStream,
    hot_totals,
    merge_reports,
    report_hot_bytes,
)
from ursula.model.commands import AnyCommand, Append, Create, Delete, PublishSnapshot
from ursula.model.state import State

pytestmark = pytest.mark.anyio


def filled(sizes: dict[tuple[str, str], int]) -> State:
    """A state with streams of these sizes, all made in one log entry."""
    state = State(0)
    commands: list[AnyCommand] = []
    for (bucket, stream), size in sizes.items():
        commands.append(Create(bucket, stream, "text/plain", make_bucket=True))
        if size:
            commands.append(Append(bucket, stream, (b"x" * size,), "text/plain"))
    state.begin(1, BEGIN)
    state.apply_all(commands)
    return state


async def test_the_largest_streams_come_first_and_empty_ones_not_at_all() -> None:
    state = filled({("a", "one"): 1, ("a", "ten"): 10, ("b", "five"): 5, ("b", "none"): 0})
    found = await report_hot_bytes(state)
    assert found.largest == [
        HotStream(10, "a", "ten"),
        HotStream(5, "b", "five"),
        HotStream(1, "a", "one"),
    ]
    assert found.oldest_at == BEGIN
    assert found.hot_bytes == (await hot_totals(state)).hot_bytes >= 16


async def test_only_so_many_are_named() -> None:
    state = filled({("many", f"{number:04}"): number for number in range(3 * LARGEST_COUNT)})
    found = await report_hot_bytes(state)
    assert [stream.hot_bytes for stream in found.largest] == [
        3 * LARGEST_COUNT - 1 - place for place in range(LARGEST_COUNT)
    ]


async def test_nothing_has_no_bytes() -> None:
    assert await report_hot_bytes(State(0)) == HotBytesReport(0, None, [])
    assert await hot_totals(State(0)) == (0, 0)


async def test_what_was_trimmed_is_no_longer_the_streams_but_still_in_memory() -> None:
    state = filled({("a", "trimmed"): 100, ("a", "ended"): 50})
    before = (await hot_totals(state)).hot_bytes
    state.begin(2, BEGIN)
    state.apply_all(
        [
            PublishSnapshot("a", "trimmed", 100, "blob", "text/plain", 1, "digest", trim=True),
            Delete("a", "ended"),
        ]
    )
    found = await report_hot_bytes(state)
    assert found.largest == []
    assert found.hot_bytes >= before


def test_groups_are_put_together() -> None:
    first = HotBytesReport(10, 7, [HotStream(10, "a", "s")])
    second = HotBytesReport(20, 5, [HotStream(15, "b", "t"), HotStream(5, "b", "u")])
    assert merge_reports([first, second, HotBytesReport(0, None, [])]) == HotBytesReport(
        30, 5, [HotStream(15, "b", "t"), HotStream(10, "a", "s"), HotStream(5, "b", "u")]
    )


async def test_others_go_on_while_it_walks_and_may_change_everything() -> None:
    state = filled(
        {(f"bucket-{number % 300}", f"stream-{number}"): 1 + number % 7 for number in range(60_000)}
    )
    walk = asyncio.create_task(report_hot_bytes(state))
    stretches, turns = Stretches(), 0
    while not walk.done():
        await asyncio.sleep(0)
        stretches.note()
        state.begin(2 + turns, BEGIN)
        state.apply_all(
            [
                Delete(f"bucket-{turns % 300}", f"stream-{turns}"),
                Create("added", f"{turns}", "text/plain", make_bucket=True),
            ]
        )
        turns += 1
        stretches.begin()
    assert stretches.are_short()
    assert len((await walk).largest) == LARGEST_COUNT
