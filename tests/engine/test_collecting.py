"""What nobody needs is removed from the store, and nothing else ever is."""

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tests.engine.tidying import DAY, Tidied, tidied

from ursula.cold.objects import keys
from ursula.cold.objects.ulid import new_ulid
from ursula.cold.state import manifest as manifests
from ursula.engine.clock import system_clock
from ursula.engine.failures import Failure, Superseded
from ursula.engine.offline.restore import Moment, choose, plan_restore
from ursula.engine.upkeep import garbage as collecting
from ursula.engine.upkeep import merge_policy as neighbours
from ursula.model.commands import AnyCommand, ForkPoint
from ursula.model.outcomes import AnyOutcome, Refused, Undeleted

pytestmark = pytest.mark.anyio

SEED = 20261116
WEEKEND_NS = 2 * int(DAY) * 1_000_000_000


async def test_objects_that_nothing_names_are_removed_when_they_are_old_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"kept")
        await group.flush()
        named = await group.objects()
        orphans = [
            keys.segment_key(0, 5, 6),
            keys.state_key(0, 6),
            f"blobs/b/1-2-3/{new_ulid()}",
            f"staging/b/{new_ulid()}.arrow",
        ]
        for key in orphans:
            await group.store.put(key, b"12345")
        await group.store.put("blobs/b/1-2-3/someone-elses", b"theirs")
        await group.collect(DAY)
        assert set(orphans) < await group.objects()
        caplog.set_level("INFO")
        collector = await group.collect(0, system_clock() + 1_000_000)
        assert await group.objects() == named | {"blobs/b/1-2-3/someone-elses"}
        assert (collector.collected_count, collector.collected_bytes) == (4, 20)
        assert [record.getMessage() for record in caplog.records] == [
            "removed 4 objects with 20 bytes that nothing needs from the store"
        ]
        assert await group.read("a") == b"kept"


async def test_what_a_merge_replaced_is_removed_only_when_it_was_kept_long_enough(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        for number in range(16):
            await group.append("a", b"%d" % number)
            await group.flush()
        inputs = await group.objects("segments/")
        await group.merge()
        await group.flush()
        await group.flush()
        await group.collect(DAY)
        assert inputs < await group.objects("segments/")
        assert await group.check_manifests() == 18
        await group.collect(0)
        assert len(await group.objects("segments/")) == 1
        assert await group.check_manifests() == 2


async def test_what_an_old_list_tells_readers_outside_is_kept_until_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        for number in range(16):
            await group.append("a", b"%d" % number)
            await group.flush()
        listed = {segment.path for segment in (await manifests.read_live(group.store, 0)).segments}
        assert len(listed) == 16
        await group.merge()
        for _ in range(3):
            await group.flush(tell=False)
            await group.collect(0)
        assert group.group.state.stored.replaced.keys().isdisjoint(listed), "they are forgotten"
        assert len(list(group.group.state.segments)) == 1
        assert listed < await group.objects("segments/")
        await group.flush()
        await group.collect(0)
        assert len(await group.objects("segments/")) == 1


async def test_a_snapshot_that_was_replaced_is_kept_for_its_readers_and_then_removed(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"0123456789")
        first = await group.trim("a", 0)
        second = await group.trim("a", 10)
        await group.flush()
        await group.flush()
        await group.collect(DAY)
        assert await group.objects("blobs/") == {first, second}
        await group.collect(0)
        assert await group.objects("blobs/") == {second}
        await group.delete("a")
        await group.flush()
        await group.flush()
        await group.collect(DAY)
        assert isinstance(await group.undelete("a"), Undeleted)
        await group.collect(0)
        assert await group.objects("blobs/") == {second}
        await group.delete("a")
        await group.flush()
        await group.flush()
        await group.collect(0)
        assert isinstance(await group.undelete("a"), Refused)
        assert await group.objects("blobs/") == {second}, "a restore can still bring the stream back"
        assert await group.check_manifests() == 2
        await group.flush()
        await group.flush()
        await group.collect(0)
        assert await group.objects("blobs/") == set()


async def test_a_command_that_names_what_may_be_gone_is_refused(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"0123456789")
        await group.flush()
        await group.collect(-60)
        with pytest.raises(AssertionError, match="took too long"):
            await group.trim("a", 10)


async def test_nothing_is_removed_by_a_node_of_an_earlier_generation_nor_right_after_a_restore(
    tmp_path: Path,
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"kept")
        await group.flush()
        orphan = keys.state_key(0, 6)
        await group.store.put(orphan, b"")
        soon = system_clock() + 1_000_000
        begun = manifests.Generation(manifests.FORMAT, "c", 1, 1, group.group.state.at + 60_000_000)
        await group.store.put(keys.generation_key(1), manifests.encode(begun))
        await group.collect(0, soon)
        assert orphan in await group.objects()
        later = manifests.Generation(manifests.FORMAT, "c", 2, 1, 0)
        await group.store.put(keys.generation_key(2), manifests.encode(later))
        with pytest.raises(Superseded):
            await group.collect(0, soon)
        assert orphan in await group.objects()


async def test_a_store_is_whole_though_a_stream_with_a_snapshot_can_come_back_no_more(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"0123456789")
        await group.trim("a", 10)
        await group.delete("a")
        await group.flush()
        await group.flush()
        for _ in range(4):
            await group.collect(0)
            assert (await plan_restore(group.store, None, lambda *_: None)).damages == []
            if group.flusher.is_requested:
                await group.flush()
        assert await group.objects("blobs/") == set()
        assert not group.flusher.is_requested


async def test_an_idle_group_is_flushed_until_what_was_replaced_can_be_removed(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        for number in range(16):
            await group.append("a", b"%d" % number)
            await group.flush()
        await group.merge()
        for _ in range(4):
            if group.flusher.is_requested:
                await group.flush()
            await group.collect(0)
        assert not group.flusher.is_requested
        assert len(await group.objects("segments/")) == 1


async def test_very_much_that_has_ended_is_collected_by_many_small_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "COLLECTED_AT_ONCE", 4)
    async with tidied(tmp_path) as group:
        deleted, propose = group.group.state.deleted.incarnations, group.group.propose_and_wait
        for number in range(30):
            await group.create(f"s{number}", b"x")
            await group.delete(f"s{number}")
        counts = [len(deleted)]

        async def counted(command: AnyCommand) -> AnyOutcome | Failure:
            outcome = await propose(command)
            counts.append(len(deleted))
            return outcome

        monkeypatch.setattr(group.group, "propose_and_wait", counted)
        await group.collect(0)
        assert (counts[0], counts[-1]) == (30, 0)
        assert all(before - after <= 4 for before, after in pairwise(counts))
        assert group.group.state.stored.horizon > group.group.state.at - 60_000_000


async def test_a_restore_reaches_as_far_back_as_is_kept_however_long_nothing_was_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, time_ns = 0, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + passed)  # of the log, and of the objects' names
    async with tidied(tmp_path) as group:
        await group.create("a", b"too old")
        await group.flush()
        await group.append("a", b", before the weekend")
        await group.flush()
        expected = group.flusher.manifest_position
        passed += WEEKEND_NS
        horizon = system_clock()
        passed += WEEKEND_NS
        for number in range(20):
            await group.append("a", b"%d" % number)
            await group.flush()
        await group.merge()
        await group.flush()
        await group.flush()
        await group.collect((system_clock() - horizon) / 1_000_000)
        assert (await choose(group.store, 0, Moment(time=horizon))).manifest.position == expected
        assert (await manifests.find_manifests(group.store, 0))[-1].position == expected
        assert await group.check_manifests() == 23
        await group.collect(0)
        assert await group.check_manifests() == 2


async def test_a_manifest_that_cannot_be_read_is_not_the_one_that_is_kept_for_a_restore(
    tmp_path: Path,
) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a")
        for number in range(6):
            await group.append("a", b"%d" % number)
            await group.flush()
        found = await manifests.find_manifests(group.store, 0)
        for damaged in found[:2]:
            await group.store.put(damaged.key, b"{")
        await group.collect(0)
        left = await manifests.find_manifests(group.store, 0)
        assert [one.key for one in left] == [one.key for one in found[:3]]
        assert (await choose(group.store, 0, Moment(found[2].position))).newer_count == 2


async def test_an_idle_group_is_flushed_twice_at_most_for_what_was_replaced(tmp_path: Path) -> None:
    async with tidied(tmp_path) as group:
        await group.create("a", b"1")
        await group.flush()
        await group.flusher.request_base()
        await group.flush()
        replaced = set(group.group.state.stored.replaced)
        assert len(replaced) == 1
        for keep, flushes in ((DAY, 1), (DAY, 0), (DAY, 0), (0, 1), (0, 0), (0, 0)):
            await group.collect(keep)
            assert group.flusher.is_requested == bool(flushes), keep
            if flushes:
                await group.flush()
        assert not replaced & await group.objects("state/")


@pytest.mark.parametrize("number", range(4))
async def test_nothing_that_is_needed_is_ever_removed(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "COUNT_MIN", 3)
    monkeypatch.setattr(neighbours, "GROWTH_MIN", 1)
    chosen = random.Random(SEED + number)
    history = History(chosen)
    for _ in range(3):  # lives of the server
        async with tidied(tmp_path) as group:
            await history.check(group)
            for _ in range(40):
                await history.step(group)
            await history.check(group)


class History:
    """Random operations, and what must be there after them."""

    def __init__(self, chosen: random.Random) -> None:
        self._random = chosen
        self._contents: dict[str, tuple[int, bytes]] = {}  # where each begins, and all that was written
        self._ended: dict[str, tuple[int, bytes]] = {}  # those that can still come back
        self._number = 0

    async def step(self, group: Tidied) -> None:
        """One operation."""
        steps = (self._create, self._append, self._append, self._append, self._fork, self._trim, self._delete)
        more = (self._undelete, self._flush, self._flush, self._flush, self._merge, self._collect)
        await self._random.choice((*steps, *more))(group)

    async def check(self, group: Tidied) -> None:
        """Every stream has every byte, and every manifest all that it names."""
        for name, (earliest, text) in self._contents.items():
            assert await group.read(name, earliest) == text[earliest:], name
        assert {f"blobs/{blob}" for blob in group.group.state.blobs} <= await group.objects("blobs/")
        await group.check_manifests()

    async def _create(self, group: Tidied) -> None:
        name = f"s{self._random.randrange(6)}"
        if name not in self._contents and not self._is_forked(group, name):
            text = self._text()
            await group.create(name, text)
            self._contents[name] = 0, text
            self._ended.pop(name, None)

    async def _append(self, group: Tidied) -> None:
        if self._contents:
            name = self._any()
            earliest, text = self._contents[name]
            more = [self._text() for _ in range(self._random.randrange(1, 4))]
            await group.append(name, *more)
            self._contents[name] = earliest, text + b"".join(more)

    async def _fork(self, group: Tidied) -> None:
        if self._contents:
            self._number += 1
            source, name = self._any(), f"fork{self._number}"
            earliest, text = self._contents[source]
            offset = self._random.randrange(earliest, len(text) + 1)
            await group.create(name, fork=ForkPoint(source, offset))
            self._contents[name] = earliest, text[:offset]

    async def _trim(self, group: Tidied) -> None:
        if self._contents:
            name = self._any()
            earliest, text = self._contents[name]
            offset = text.rfind(b"<", 0, max(earliest, self._random.randrange(len(text) + 1)) + 1)
            stream = group.group.state.find("b", name)
            shown = -1 if stream is None or stream.snapshot is None else stream.snapshot.offset
            if offset > max(earliest, shown):
                await group.trim(name, offset)
                self._contents[name] = offset, text

    async def _delete(self, group: Tidied) -> None:
        if self._contents:
            name = self._any()
            await group.delete(name)
            self._ended[name] = self._contents.pop(name)

    async def _undelete(self, group: Tidied) -> None:
        for name in sorted(self._ended):
            if isinstance(await group.undelete(name), Undeleted):
                self._contents[name] = self._ended.pop(name)
                return

    async def _flush(self, group: Tidied) -> None:
        await group.flush()

    async def _merge(self, group: Tidied) -> None:
        await group.merge()

    async def _collect(self, group: Tidied) -> None:
        keep = self._random.choice((0, 0.05, 0.2))
        now = system_clock()
        before = await manifests.find_manifests(group.store, 0)
        reached = before[await manifests.last_at(group.store, before, now - int(keep * 1_000_000)) :][:1]
        await group.collect(keep, now)
        assert set(reached) <= set(await manifests.find_manifests(group.store, 0))
        await self.check(group)

    def _any(self) -> str:
        return self._random.choice(sorted(self._contents))

    def _text(self) -> bytes:
        self._number += 1
        return b"<%d %s>" % (self._number, b"x" * self._random.randrange(60))

    @staticmethod
    def _is_forked(group: Tidied, name: str) -> bool:
        return group.group.state.find("b", name) is not None
