"""What is stored stays in memory for a while, as far as there is room; only the time tells."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.driving import until
from tests.engine.nodes import begin, done, got, node_on, picture, write

from ursula.cold.blobs import made_at
from ursula.config import ColdSettings
from ursula.engine.node import Node
from ursula.engine.pacing import TimeSlice
from ursula.engine.status.hot_bytes import HotStream, report_hot_bytes
from ursula.model import bucket, residency
from ursula.model.commands import (
    Append,
    Body,
    Create,
    Delete,
    ForkPoint,
    PlainAppend,
    PublishSnapshot,
    Undelete,
)
from ursula.model.outcomes import Appended, Ended, Page
from ursula.model.stream import row as rows
from ursula.model.stream import stream
from ursula.model.stream.messages import Messages

pytestmark = pytest.mark.anyio

ROOM = 64 * 1024
"""Half of it may stay: two of the parts below, and not three."""

PART_BYTES = 12 * 1024


def with_room(cache_bytes: int = ROOM) -> ColdSettings:
    return ColdSettings(flush_size=1 << 40, cache_bytes=cache_bytes)


async def add_part(node: Node, letter: bytes, stream: str = "s") -> None:
    """Append, and flush as the server does by itself."""
    group = node.groups[0]
    if group.state.find("b", stream) is None:
        await done(group, Create("b", stream, "text/plain", make_bucket=True))
    await done(group, Append("b", stream, (letter * PART_BYTES,), "text/plain"))
    await node.flushers[0].flush()
    await settled(node)


async def settled(node: Node) -> None:
    task = node.groups[0].evictor.task
    assert task is not None
    await until(task.done)


async def read(node: Node, offset: int = 0, stream: str = "s") -> bytes:
    page = await got(node.groups[0].read("b", stream, offset, 1 << 30))
    assert isinstance(page, Page)
    return b"".join(page.chunks)


def in_memory(node: Node, stream: str = "s") -> int:
    found = node.groups[0].state.find("b", stream)
    assert found is not None
    return found.tail - found.messages.start


async def test_what_was_flushed_lately_is_read_from_memory(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        await add_part(node, b"a")
        state = node.groups[0].state
        assert state.gauge.count == 0, "it does not count as what waits for the store"
        assert await read(node) == b"a" * PART_BYTES
        assert node.segments.fetch_count == 0
        assert PART_BYTES < node.cache.held_bytes == node.groups[0].evictor.resident_bytes < 2 * PART_BYTES


async def test_the_oldest_goes_when_there_is_no_room_for_all(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        for letter in (b"a", b"b", b"c", b"d"):
            await add_part(node, letter)
        assert in_memory(node) == 2 * PART_BYTES
        assert node.groups[0].evictor.resident_bytes <= ROOM // 2
        assert await read(node, 2 * PART_BYTES) == b"c" * PART_BYTES + b"d" * PART_BYTES
        assert node.segments.fetch_count == 0
        assert await read(node) == b"".join(letter * PART_BYTES for letter in (b"a", b"b", b"c", b"d"))
        assert node.segments.fetch_count > 0


async def test_what_is_read_from_the_store_may_need_the_room(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room(8 * PART_BYTES)) as node:
        for letter in (b"a", b"b", b"c", b"d", b"e", b"f"):
            await add_part(node, letter)
        stayed = in_memory(node)
        for letter in (b"u", b"v", b"w"):
            await add_part(node, letter, letter.decode())
        assert in_memory(node) < stayed
        await node.flushers[0].flush_and_wait()
        await settled(node)
        await add_part(node, b"x", "x")
        assert in_memory(node, "x") == PART_BYTES
        for stream in "suvw":
            await read(node, stream=stream)
        await settled(node)
        assert in_memory(node, "x") == 0
        assert node.groups[0].evictor.resident_bytes == 0
        assert node.cache.held_bytes <= node.cache.bytes_max


async def test_who_asks_for_a_flush_has_everything_out_of_memory(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        await add_part(node, b"a")
        await add_part(node, b"b")
        assert in_memory(node) == 2 * PART_BYTES
        await node.flushers[0].flush_and_wait()
        await settled(node)
        assert in_memory(node) == 0
        assert (node.cache.held_bytes, node.groups[0].evictor.resident_bytes) == (0, 0)
        assert await read(node) == b"a" * PART_BYTES + b"b" * PART_BYTES
        await add_part(node, b"c")
        assert in_memory(node) == PART_BYTES, "what the server flushes by itself may stay again"


async def test_it_stays_for_some_time_and_then_its_stream_is_parked(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        group = node.groups[0]
        await add_part(node, b"a")
        group.evictor.tick()
        assert in_memory(node) == PART_BYTES
        group.evictor.seconds = 0.0
        group.evictor.tick()
        await settled(node)
        assert "s" in group.state.buckets["b"].parked
        assert node.cache.held_bytes == 0


async def test_a_small_stream_that_was_written_to_lately_is_not_parked(tmp_path: Path) -> None:
    """It is likely to be written to again, and parking it after each append costs more than the append."""
    async with node_on(tmp_path, cold=with_room()) as node:
        group = node.groups[0]
        await done(group, Create("b", "few", "text/plain", (b"hello",), make_bucket=True))
        await done(group, Create("b", "none", "text/plain"))
        await add_part(node, b"a")
        assert not group.state.buckets["b"].parked, "a new stream is likely to be written to, too"
        found = group.state.find("b", "few")
        await done(group, Append("b", "few", (b" world",), "text/plain"))
        await add_part(node, b"b")
        assert group.state.find("b", "few") is found
        assert await read(node, stream="few") == b"hello world"
        assert node.segments.fetch_count == 0


async def test_small_streams_are_parked_at_once_when_together_they_are_too_large(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        group = node.groups[0]
        for number in range(100):
            await done(group, Create("b", f"few-{number}", "text/plain", (b"hello",), make_bucket=True))
        await node.flushers[0].flush()
        await settled(node)
        assert len(group.state.buckets["b"].parked) == 100
        assert (node.cache.held_bytes, group.evictor.resident_bytes) == (0, 0)


async def test_a_stream_is_parked_as_the_row_that_was_stored_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was encoded for the store already; one that has changed since then must be encoded again."""
    encoded: list[str] = []

    def encode(found: stream.Stream) -> bytes:
        encoded.append(found.name)
        return rows.encode_stream(found)

    monkeypatch.setattr(bucket, "encode_stream", encode)
    async with node_on(tmp_path, cold=with_room(0)) as node:
        group = node.groups[0]
        for name in ("still", "busy"):
            await done(group, Create("b", name, "text/plain", (b"hello",), make_bucket=True))
        await node.flushers[0].flush()
        await settled(node)
        assert sorted(encoded) == ["busy", "still"], "once each"
        await done(group, Append("b", "busy", (b" world",), "text/plain"))
        assert await read(node, stream="still") == b"hello"
        await node.flushers[0].flush()
        group.evictor.tick()
        await settled(node)
        assert sorted(encoded) == ["busy", "busy", "still"]
        parked = group.state.buckets["b"].parked
        assert sorted(parked) == ["busy", "still"]
        for name, row in parked.items():
            assert rows.encode_stream(rows.decode_stream(name, row)) == row
        assert rows.decode_stream("busy", parked["busy"]).tail == len(b"hello world")


async def test_the_usual_append_needs_no_longer_way_because_its_stream_is_parked(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room(0)) as node:
        group = node.groups[0]
        await done(group, Create("b", "few", "text/plain", (b"hello",), make_bucket=True))
        await node.flushers[0].flush()
        await settled(node)
        assert "few" in group.state.buckets["b"].parked
        answers: list[object] = []
        assert group.append_fast(PlainAppend("b", "few", (b" world",), "text/plain"), answers.append, 6)
        await until(lambda: bool(answers))
        assert isinstance(answers[0], Appended)
        assert await read(node, stream="few") == b"hello world"


async def test_what_stays_is_counted_once_however_often_it_is_flushed(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room(40 * PART_BYTES)) as node:
        for letter in (b"a", b"b", b"c", b"d"):
            await add_part(node, letter)
        assert in_memory(node) == 4 * PART_BYTES
        assert 4 * PART_BYTES < node.groups[0].evictor.resident_bytes < 5 * PART_BYTES


async def test_what_stays_is_not_told_to_be_hot(tmp_path: Path) -> None:
    async with node_on(tmp_path, cold=with_room()) as node:
        group = node.groups[0]
        await add_part(node, b"a")
        assert (await report_hot_bytes(group.state)).largest == []
        await done(group, Append("b", "s", (b"new",), "text/plain"))
        assert (await report_hot_bytes(group.state)).largest == [HotStream(3, "b", "s")]


async def test_a_flush_that_ends_while_streams_are_parked_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_on(tmp_path, cold=with_room(0)) as node:
        evictor, residency = node.groups[0].evictor, node.groups[0].state.residency
        await add_part(node, b"a")
        drive, parking, go_on = evictor._drive, asyncio.Event(), asyncio.Event()

        async def slowly(steps: Iterator[None], turn: TimeSlice) -> None:
            if steps.__name__ == "park_unused":  # type: ignore[attr-defined]
                parking.set()
                await go_on.wait()
            await drive(steps, turn)

        monkeypatch.setattr(evictor, "_drive", slowly)
        evictor.begin()
        await parking.wait()
        await done(node.groups[0], Append("b", "s", (b"b" * PART_BYTES,), "text/plain"))
        flushing = asyncio.create_task(node.flushers[0].flush())
        await until(lambda: residency.has_evictable)
        go_on.set()
        await flushing
        await settled(node)
        assert in_memory(node) == 0
        assert node.groups[0].state.gauge.count == 0


async def live(node: Node) -> list[bytes]:
    """Streams that are trimmed, forked, deleted, made again and brought back while they may be in memory."""
    group = node.groups[0]

    async def flush() -> None:
        await node.flushers[0].flush()
        await settled(node)

    seen = []
    for letter in (b"a", b"b"):
        await add_part(node, letter)
        await add_part(node, letter, "t")
    await done(group, Create("b", "fork", None, fork=ForkPoint("s", PART_BYTES)))
    await done(group, PublishSnapshot("b", "t", PART_BYTES, "blob", "text/plain", 4, "digest"))
    seen += [await read(node, stream="fork"), await read(node, PART_BYTES, "t")]
    await done(group, Delete("b", "s"))
    await flush()
    seen.append(await read(node, stream="fork"))
    ended = await group.propose_and_wait(Delete("b", "t"))
    assert isinstance(ended, Ended)
    await add_part(node, b"n", "t")
    seen.append(await read(node, stream="t"))
    await done(group, Delete("b", "t"))
    await done(group, Undelete("b", "t", ended.incarnation))
    seen.append(await read(node, PART_BYTES, "t"))
    await add_part(node, b"z", "t")
    seen.append(await read(node, PART_BYTES, "t"))
    await flush()
    seen.append(await read(node, PART_BYTES, "t"))
    return seen


async def test_streams_that_stay_may_be_trimmed_forked_deleted_and_brought_back(tmp_path: Path) -> None:
    async with (
        node_on(tmp_path / "some", cold=with_room()) as some,
        node_on(tmp_path / "all", cold=with_room(1 << 30)) as every,
        node_on(tmp_path / "none", cold=with_room(0)) as none,
    ):
        seen = await live(none)
        assert [len(found) // PART_BYTES for found in seen] == [1, 1, 1, 1, 1, 2, 2]
        assert await live(some) == seen
        assert await live(every) == seen
        assert every.groups[0].evictor.resident_bytes > 0


async def test_a_body_that_was_stored_by_itself_does_not_stay(tmp_path: Path) -> None:
    """Its object is not needed any more, and may be collected."""
    async with node_on(tmp_path, cold=with_room()) as node:
        await add_part(node, b"a")
        blob = node.blobs.new_key("b", "x")
        await node.blobs.put(blob, [b"large"])
        named = Append("b", "s", (), "text/plain", body=Body(blob, (5,), made_at(blob)))
        await done(node.groups[0], named)
        await node.flushers[0].flush()
        await settled(node)
        await node.blobs.remove(blob)
        assert in_memory(node) == 0
        assert await read(node) == b"a" * PART_BYTES + b"large"


@pytest.mark.parametrize("cache_bytes", [0, 4096, 16 * 1024, 256 << 20])
async def test_what_stays_changes_nothing_that_can_be_seen(tmp_path: Path, cache_bytes: int) -> None:
    async with node_on(tmp_path / "hot") as hot, node_on(tmp_path, cold=with_room(cache_bytes)) as node:
        for each in (hot, node):
            await begin(each)
        for part in range(1, 6):
            await node.flushers[0].flush()
            for each in (hot, node):
                await write(each, part)
            assert contents(await picture(node)) == contents(await picture(hot))
        await node.flushers[0].flush()
        before = await picture(node)
    async with node_on(tmp_path) as node:
        assert await picture(node) == before


def contents(seen: dict[str, object]) -> dict[str, object]:
    return {name: found for name, found in seen.items() if name.endswith(": content")}


@pytest.fixture
def bites(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages are let go of at once, each time."""
    found: list[int] = []
    drop_before = Messages.drop_before

    def counted(messages: Messages, offset: int, count_max: int | None = None) -> int:
        found.append(drop_before(messages, offset, count_max))
        return found[-1]

    monkeypatch.setattr(residency, "DROPPED_AT_ONCE", 8)
    monkeypatch.setattr(Messages, "drop_before", counted)
    return found


async def test_the_messages_of_a_stream_that_has_ended_are_let_go_of_some_at_a_time(
    tmp_path: Path, bites: list[int]
) -> None:
    async with node_on(tmp_path) as node:
        group = node.groups[0]
        for _ in range(3):
            await done(group, Create("b", "s", "text/plain", make_bucket=True))
            for number in range(30):
                await done(group, Append("b", "s", (b"%d." % number,), "text/plain"))
            await done(group, Delete("b", "s"))
        await node.flushers[0].flush()
        await settled(node)
        assert max(bites) == 8
        assert sum(bites) == 3 * 30
        assert not group.state.deleted._hot
        await done(group, Undelete("b", "s"))
        assert await read(node) == b"".join(b"%d." % number for number in range(30))


async def test_very_many_messages_that_were_trimmed_are_let_go_of_some_at_a_time(
    tmp_path: Path, bites: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "TRIMMED_AT_ONCE", 8)
    async with node_on(tmp_path) as node:
        group = node.groups[0]
        await done(group, Create("b", "s", "text/plain", make_bucket=True))
        for number in range(30):
            await done(group, Append("b", "s", (b"%02d" % number,), "text/plain"))
        held_bytes = group.state.gauge.count
        await done(group, PublishSnapshot("b", "s", 58, "x", "text/plain", 1, "sha256:x", made_at=1))
        await settled(node)
        assert (in_memory(node), group.state.residency.trimmed) == (2, {})
        assert (max(bites), sum(bites)) == (8, 29)
        assert group.state.gauge.count > held_bytes, "the feed still has them, and they must be stored"
        assert await read(node, 58) == b"29"
