"""Small segments become few, without anything of what is needed; what nobody needs is left out."""

import asyncio
from pathlib import Path

import pytest
from tests.engine.tidying import DAY, Tidied, tidied

from ursula.engine.upkeep import merge_policy as neighbours
from ursula.engine.upkeep import merge_rows
from ursula.engine.upkeep.liveness import LiveRows
from ursula.engine.upkeep.merge_policy import FULL_BYTES, next_run
from ursula.model.commands import DeleteBucket, ForkPoint, StoredSegment
from ursula.model.outcomes import Refused, Undeleted

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True, params=["all at once", "bit by bit"])
def range_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small merges are as large ones are."""
    if request.param == "bit by bit":
        monkeypatch.setattr(merge_rows, "RANGE_BYTES", 600)
        monkeypatch.setattr(merge_rows, "SAMPLE_BYTES_MIN", 1)


async def write(group: Tidied, flushes: int, names: tuple[str, ...] = ("a", "z")) -> dict[str, bytes]:
    """Append to streams and flush, some times; returns what was written."""
    written = dict.fromkeys(names, b"")
    for number in range(flushes):
        for name in names:
            text = b"<%s %d>" % (name.encode(), number) * (1 + number % 5)
            await group.append(name, text)
            written[name] += text
        await group.flush()
    return written


async def test_reads_at_every_offset_are_the_same_while_segments_are_merged(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await group.create("z")
        written = await write(group, 20)
        feed = await group.feed()
        assert len(group.group.state.segments) == 20
        merging = asyncio.create_task(group.merge())
        offset = 0
        while not merging.done() or offset < 50:
            text = await group.read("a", offset % len(written["a"]), 30)
            assert text == written["a"][offset % len(written["a"]) :][:30]
            offset += 1
        await merging
        assert len(group.group.state.segments) <= 10
        assert group.merger.merged_count >= 16
        for offset in range(0, len(written["z"]), 7):
            assert await group.read("z", offset, 40) == written["z"][offset:][:40]
        assert await group.feed() == feed


async def test_a_stream_needs_few_references_however_often_it_is_flushed(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = b""
        for _ in range(4):
            written += (await write(group, 16, ("a",)))["a"]
            await group.merge()
        stream = group.group.state.find("b", "a")
        assert stream is not None
        assert stream.refs is not None
        assert len(stream.refs) // 3 <= 33
        assert await group.read("a") == written


async def test_a_merge_survives_a_restart(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = await write(group, 20, ("a",))
        await group.merge()
        count = len(group.group.state.segments)
    async with tidied(tmp_path) as group:
        assert len(group.group.state.segments) == count < 20
        assert await group.read("a") == written["a"]


async def test_a_deleted_stream_can_come_back_until_it_is_forgotten_and_then_its_rows_go(
    tmp_path: Path,
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await group.create("z")
        written = await write(group, 20)
        await group.delete("a")
        await group.flush()
        await group.collect(DAY)
        await group.merge()
        assert {row.stream for _, row in await group.feed()} == {"a", "z"}
        assert isinstance(await group.undelete("a"), Undeleted)
        assert await group.read("a") == written["a"]
        await group.delete("a")
        await group.flush()
        before = group.group.state.segments.payload_bytes
        await group.forget()
        assert group.group.state.segments.payload_bytes <= before - len(written["a"])
        assert {row.stream for _, row in await group.feed() if row.kind == "append"} == {"z"}
        assert isinstance(await group.undelete("a"), Refused)
        assert await group.read("z") == written["z"]


async def test_whoever_follows_late_is_told_of_every_end_and_trim(tmp_path: Path) -> None:
    """Appends leave the feed in the end, but never the rows that say why."""
    async with tidied(tmp_path) as group:
        for name in ("deleted", "again", "trimmed"):
            await group.create(name)
        written = await write(group, 20, ("deleted", "again", "trimmed"))
        late = (await group.feed())[-1][0]
        await group.delete("deleted")
        await group.delete("again")
        await group.create("again", b"new")
        await group.trim("trimmed", len(written["trimmed"]))
        await group.create("other")
        await write(group, 20, ("other",))  # so that the segment that has the ends is merged with others
        await group.forget()
        rows = await group.feed()
        assert {row.stream for _, row in rows if row.kind == "append"} == {"again", "other"}
        told = [(row.kind, row.stream) for position, row in rows if position > late]
        assert [one for one in told if one[0] in ("delete", "snapshot", "trim")] == [
            ("delete", "deleted"),
            ("delete", "again"),
            ("snapshot", "trimmed"),
            ("trim", "trimmed"),
        ]
        await group.forget()
        assert await group.feed() == rows, "and they stay"


async def test_the_end_of_a_stream_goes_with_its_bucket(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await write(group, 3, ("a",))
        await group.delete("a")
        await group.do(DeleteBucket("b"))
        await group.create("a", b"again")
        await group.flush()
        await group.forget()
        assert len(group.group.state.segments) == 1
        assert [row.kind for _, row in await group.feed()] == ["create", "append"]


async def test_a_segment_of_which_nothing_is_left_is_removed(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await write(group, 3, ("a",))
        await group.delete("a")
        await group.create("a", b"again")
        await group.flush()
        assert len(group.group.state.segments) == 4
        await group.forget()
        assert len(group.group.state.segments) == 1, "which has the end of the first one too"
        assert await group.read("a") == b"again"
        assert [row.payload for _, row in await group.feed() if row.kind == "append"] == [b"again"]


async def test_streams_are_examined_for_dead_bytes_only_after_one_ended_or_was_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examination walks over every stream, which requests notice where there are very many."""
    examined = 0
    bytes_by_segment = LiveRows.bytes_by_segment

    async def counted(live: LiveRows) -> dict[str, int]:
        nonlocal examined
        examined += 1
        return await bytes_by_segment(live)

    monkeypatch.setattr(LiveRows, "bytes_by_segment", counted)

    async with tidied(tmp_path) as group:
        await group.create("a")
        written = await write(group, 4, ("a",))
        await group.forget()
        assert examined == 0
        await group.trim("a", written["a"].index(b"<a 2>"))
        await group.forget()
        assert examined > 0
    async with tidied(tmp_path) as group:
        before = examined
        await group.forget()
        assert examined > before, "what was dropped before a start is unknown"


@pytest.mark.parametrize("keep_trimmed", [False, True])
async def test_trimmed_history_goes_unless_it_is_to_be_kept(tmp_path: Path, keep_trimmed: bool) -> None:
    async with tidied(tmp_path, keep_trimmed) as group:
        await group.create("a")
        written = await write(group, 20, ("a",))
        middle = written["a"].index(b"<a 15>")
        await group.trim("a", middle)
        await group.flush()
        await group.collect(DAY)
        await group.merge()
        offsets = [row.offset for _, row in await group.feed() if row.kind == "append"]
        assert min(offsets) == 0, "it was trimmed only now"
        await group.forget()
        offsets = [row.offset for _, row in await group.feed() if row.kind == "append"]
        assert min(offsets) == (0 if keep_trimmed else middle)
        assert await group.read("a", middle) == written["a"][middle:]
        assert isinstance(await group.read("a", middle - 1), Refused)


async def test_a_stream_that_is_trimmed_again_while_only_some_of_it_was_removed_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"a" * 100)
        await group.append("a", b"a" * 100)
        await group.create("z", b"z" * 1000)
        await group.flush()
        for letter in (b"b", b"c", b"d"):
            await group.append("a", letter * 100, letter * 100)
            await group.flush()
        await group.trim("a", 100)
        await group.trim("a", 400)
        await group.collect(0)
        await group.merge()
        assert len(group.group.state.segments) == 3, "the second had nothing that is needed"
        await group.trim("a", 700)
        monkeypatch.setattr(neighbours, "COUNT_MIN", 3)
        monkeypatch.setattr(neighbours, "GROWTH_MIN", 1)
        await group.flush()
        await group.merge()
        assert len(group.group.state.segments) < 3
        assert await group.read("a", 700) == b"d" * 100
        assert await group.read("z") == b"z" * 1000


async def test_a_stream_that_is_trimmed_on_and_on_takes_no_more_and_more_references(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await group.create("z")
        for number in range(30):
            await group.append("a", b"%040d" % number)
            await group.trim("a", 40 * number)
            await group.flush()
            await group.collect(0)
            await group.merge()
        stream = group.group.state.find("b", "a")
        assert stream is not None
        assert stream.refs is not None
        assert len(stream.refs) // 3 <= 18
        assert await group.read("a", 40 * 29) == b"%040d" % 29


async def test_a_fork_keeps_what_it_shares_with_its_source(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = (await write(group, 10, ("a",)))["a"]
        await group.create("fork", fork=ForkPoint("a", len(written)))
        await group.append("fork", b" and on")
        await group.create("other", fork=ForkPoint("a", len(written)))
        await group.trim("a", len(written))
        await group.delete("a")
        await group.flush()
        await group.forget()
        assert await group.read("fork") == written + b" and on"
        await group.delete("other")
        await group.flush()
        await group.merge()
        assert isinstance(await group.undelete("other"), Undeleted)
        assert await group.read("other") == written
        for name in ("fork", "other"):
            await group.delete(name)
        await group.flush()
        await group.forget()
        assert group.group.state.segments.payload_bytes == 0


async def test_an_ended_fork_that_may_come_back_keeps_what_it_shares(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = (await write(group, 4, ("a",)))["a"]
        await group.create("fork", fork=ForkPoint("a", len(written)))
        await group.trim("a", len(written))
        await group.flush()
        await group.collect(0)
        await group.delete("fork")
        await group.merge()
        assert isinstance(await group.undelete("fork"), Undeleted)
        assert await group.read("fork") == written


@pytest.mark.parametrize("damage", ["missing", "damaged"])
async def test_a_segment_that_cannot_be_read_is_left_alone_and_its_neighbours_are_merged(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        await write(group, 40, ("a",))
        bad = list(group.group.state.segments)[20].key
        path = group.store.local_path(bad)
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        await group.merge()
        await group.merge()
        keys = [segment.key for segment in group.group.state.segments]
        assert bad in keys
        assert len(keys) <= 12
        assert [bad in record.getMessage() for record in caplog.records] == [True]


async def test_segments_between_which_messages_are_missing_are_not_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = await write(group, 17, ("a",))
        missing = list(group.group.state.segments)[5]
        group.group.state.segments.remove(missing.key)
        await group.merge()
        assert len(group.group.state.segments) == 16
        assert "messages of a before 80 are missing" in caplog.text
        assert await group.read("a", 80) == written["a"][80:]


async def test_a_merge_that_comes_too_late_leaves_nothing_behind(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        written = await write(group, 16, ("a",))
        objects = await group.objects("segments/")
        await group.collect(-10)  # everything is too old
        await group.merge()
        assert await group.objects("segments/") == objects
        assert await group.read("a") == written["a"]


def test_a_byte_is_rewritten_a_few_times_however_many_segments_come() -> None:
    segments: list[StoredSegment] = []
    rewritten = written = 0
    for number in range(3_000):
        size = 1 << (10 + number * 7919 % 13)
        segments.append(segment(number, number + 1, size))
        written += size
        while inputs := next_run(segments):
            begin = segments.index(inputs[0])
            total = sum(each.size for each in inputs)
            assert total <= FULL_BYTES
            rewritten += total
            segments[begin : begin + len(inputs)] = [segment(inputs[0].first, inputs[-1].last, total)]
    assert rewritten < 5 * written
    assert len(segments) < 3 * written / FULL_BYTES + 100


def segment(first: int, last: int, size: int) -> StoredSegment:
    """A segment of this size."""
    return StoredSegment(first, last, f"{first}-{last}", 1, size, size, 0, 0, "")
