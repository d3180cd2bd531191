"""Restoring: a node from the store alone, as it was at a flush, in a generation of its own."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.engine.nodes import FaultyStore, begin, is_repeat, node_on, picture, write

from ursula.cold.objects import keys
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.store import ObjectInfo, Store, StoreUnavailable
from ursula.cold.state import manifest as manifests
from ursula.cold.state.generation_history import Lineage
from ursula.engine.offline.restore import Damaged, Moment, Restored, RestoreRefused, parse_moment, restore
from ursula.engine.offline.verify import check_contents
from ursula.engine.start.data_folder import FolderRefused, NewFolder
from ursula.engine.start.load_state import StoreRefused, load
from ursula.log.interface import GENERATION_SHIFT
from ursula.model.commands import Undelete
from ursula.model.outcomes import Undeleted

pytestmark = pytest.mark.anyio

HOUR = 3_600_000_000


def ignored(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


async def restored(
    store: Store, folder: Path, moment: Moment | None = None, accept: bool = False
) -> Restored:
    root = store.local_path("generations")
    new = NewFolder(folder, None if root is None else root.parent)
    try:
        return await restore(store, new, moment, ignored, accept_damage=accept)
    finally:
        new.close()


async def fill(folder: Path, parts: Sequence[int]) -> tuple[list[int], list[dict[str, object]]]:
    """A node that was flushed after each part; the positions, and how everything looked then."""
    positions, pictures = [], []
    async with node_on(folder) as node:
        await node.store.put("blobs/b/x/y", b"1")
        await begin(node)
        for part in parts:
            await write(node, part)
            positions.append(await node.flushers[0].flush())
            pictures.append(await picture(node))
    return positions, pictures


async def seen(folder: Path, root: Path) -> dict[str, object]:
    """What a node shows that has its store at a place."""
    async with node_on(folder, FsStore(root)) as node:
        return await picture(node)


async def test_a_restored_node_is_as_the_old_one_was_and_goes_on(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    _, pictures = await fill(old, (1, 2, 3))
    async with node_on(old) as node:
        await write(node, 4)  # which is never flushed
    found = await restored(FsStore(old / "cold"), new)
    assert (found.generation, found.extent.buckets, found.extent.streams) == (2, 1, 6)
    for flushes in range(3):
        async with node_on(new, FsStore(old / "cold")) as node:
            if flushes == 0:
                assert await picture(node) == pictures[-1]
                assert await is_repeat(node, 31)
                outcome = await node.groups[0].propose_and_wait(Undelete("b", "gone", None))
                assert not isinstance(outcome, Undeleted), "the name is taken"
            await write(node, 4 + flushes)
            expected = await picture(node)
            assert await node.flushers[0].flush() >> GENERATION_SHIFT == 2
            assert await picture(node) == expected
        assert await seen(new, old / "cold") == expected


async def test_a_node_can_be_restored_as_of_every_flush(tmp_path: Path) -> None:
    positions, pictures = await fill(tmp_path / "old", (1, 2, 3))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    for number, (position, expected) in enumerate(zip(positions, pictures, strict=True)):
        for beyond in (0, 1):
            folder = tmp_path / f"new-{number}-{beyond}"
            found = await restored(store, folder, Moment(position=position + beyond))
            assert found.chosen[0].manifest.position == position
            assert await seen(folder, root) == expected


async def test_a_time_leads_to_the_last_flush_before_it(tmp_path: Path) -> None:
    positions, pictures = await fill(tmp_path / "old", (1, 2, 3))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    found = await manifests.find_manifests(store, 0)
    times = [(await manifests.read_manifest(store, one.key)).at for one in reversed(found)]
    for number, (at, expected) in enumerate(zip(times, pictures, strict=True)):
        later = times[number + 1] - 1 if number + 1 < len(times) else at
        for name, time in (("at", at), ("later", later)):
            folder = tmp_path / f"{name}-{number}"
            restoring = await restored(store, folder, Moment(time=time))
            assert restoring.chosen[0].manifest.position == positions[number]
            assert restoring.at == at
            assert await seen(folder, root) == expected


async def test_what_lies_too_far_back_is_refused_with_what_there_is(tmp_path: Path) -> None:
    positions, _ = await fill(tmp_path / "old", (1, 2))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    with pytest.raises(RestoreRefused, match=f"position {positions[0]}, .* position {positions[1]}"):
        await restored(store, tmp_path / "new", Moment(position=positions[0] - 1))
    with pytest.raises(RestoreRefused, match=r"oldest manifest is of 2\d\d\d-.*Z, and the newest of 2"):
        await restored(store, tmp_path / "new", Moment(time=HOUR))
    with pytest.raises(RestoreRefused, match="is not a store"):
        await restored(FsStore(tmp_path / "nothing"), tmp_path / "new")
    assert [found.generation for found in await manifests.read_generations(store)] == [1]


async def test_a_damaged_manifest_is_in_the_way_of_no_other(tmp_path: Path) -> None:
    positions, pictures = await fill(tmp_path / "old", (1, 2, 3, 4))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    first, second, third, fourth = (await manifests.find_manifests(store, 0))[::-1]
    whole = {one: await manifests.read_manifest(store, one.key) for one in (first, second, third)}
    await store.put(second.key, b"{")
    await store.put(fourth.key, b"")
    for name, time in (("before", whole[first].at), ("between", whole[second].at - 1)):
        found = await restored(store, tmp_path / name, Moment(time=time))
        assert found.chosen[0].manifest.position == positions[0], name
        assert await seen(tmp_path / name, root) == pictures[0]
    found = await restored(store, tmp_path / "after", Moment(time=whole[third].at))
    assert found.chosen[0].manifest.position == positions[2]
    with pytest.raises(RestoreRefused, match=f"is damaged.*with --at {positions[0]}$"):
        await restored(store, tmp_path / "damaged", Moment(position=positions[1]))
    await store.put(first.key, b"{")
    with pytest.raises(RestoreRefused, match=r"is damaged.*: put it back from a backup$"):
        await restored(store, tmp_path / "damaged", Moment(position=positions[1]))
    with pytest.raises(RestoreRefused, match=r"the oldest manifest is of 2.*: choose a time between"):
        await restored(store, tmp_path / "too-early", Moment(time=HOUR))
    for one in await manifests.find_manifests(store, 0):
        await store.put(one.key, b"{")
    with pytest.raises(RestoreRefused, match=r"no manifest in .* can be read: put one back"):
        await restored(store, tmp_path / "too-early", Moment(time=HOUR))


async def test_a_restore_of_a_restore_may_go_back_to_before_it(tmp_path: Path) -> None:
    positions, pictures = await fill(tmp_path / "old", (1, 2, 3))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    await restored(store, tmp_path / "second", Moment(position=positions[0]))
    async with node_on(tmp_path / "second", FsStore(root)) as node:
        await write(node, 2)
        second = await node.flushers[0].flush()
        expected = await picture(node)
        lineage = node.lineage
    assert second >> GENERATION_SHIFT == 2
    assert lineage.end_before(0, positions[0]) is None
    assert lineage.end_before(0, positions[1]) == positions[0]
    await restored(store, tmp_path / "third")
    assert await seen(tmp_path / "third", root) == expected
    await restored(store, tmp_path / "fourth", Moment(position=positions[2]))
    async with node_on(tmp_path / "fourth", FsStore(root)) as node:
        assert await picture(node) == pictures[2]
        assert node.generation == 4
        assert node.lineage.end_before(0, positions[2]) is None
        assert node.lineage.end_before(0, second) == positions[2]


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
async def test_a_restore_that_ends_at_any_step_can_be_run_again(tmp_path: Path, is_late: bool) -> None:
    _, pictures = await fill(tmp_path / "old", (1, 2))
    begun = 0
    for step in count():
        root, new = tmp_path / f"cold-{step}", tmp_path / f"new-{step}"
        shutil.copytree(tmp_path / "old" / "cold", root)
        store = FaultyStore(root)
        store.calls_left, store.is_late = step, is_late
        try:
            await restored(store, new)
            break
        except StoreUnavailable:
            assert not (new / "ursula.json").exists()
        found = manifests.newest_generation(await manifests.read_generations(FsStore(root)))
        begun += found == 2
        again = await restored(FsStore(root), new)
        assert again.generation == found + 1
        assert await seen(new, root) == pictures[-1]
    assert begun >= 3, "the base, the manifest and the live list come after the generation"
    async with node_on(new, FsStore(root)) as node:
        await write(node, 3)
        expected = await picture(node)
        await node.flushers[0].flush()
    assert await seen(new, root) == expected


async def test_the_old_node_stops_at_its_next_flush_and_does_not_start_again(tmp_path: Path) -> None:
    await fill(tmp_path / "old", (1,))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    async with node_on(tmp_path / "old") as node:
        await restored(store, tmp_path / "new")
        await write(node, 2)
        with pytest.raises(Exception, match="the store is in generation 2, and this node in 1"):
            await node.flushers[0].flush()
    with pytest.raises(StoreRefused, match="is in generation 2, and this data folder in 1"):
        async with node_on(tmp_path / "old"):
            pass


async def test_all_groups_are_restored(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    identity = {"format": 1, "cluster": "0123456789abcdef", "generation": 1, "groups": 3}
    (old / "ursula.json").write_text(json.dumps(identity))
    async with node_on(old) as node:
        await node.store.put("blobs/b/x/y", b"1")
        await begin(node)
        await write(node, 1)
        for flusher in node.flushers:
            await flusher.request_base()
            await flusher.flush()
        expected = await picture(node)
    found = await restored(FsStore(old / "cold"), new)
    assert [chosen.manifest.group for chosen in found.chosen] == [0, 1, 2]
    assert json.loads((new / "ursula.json").read_text()) == {**identity, "generation": 2}
    assert await seen(new, old / "cold") == expected


async def test_the_store_may_lie_in_the_new_folder_and_nothing_else_may(tmp_path: Path) -> None:
    _, pictures = await fill(tmp_path / "old", (1,))
    new = tmp_path / "new"
    new.mkdir()
    (tmp_path / "old" / "cold").rename(new / "cold")
    (new / "notes").write_text("mine")
    with pytest.raises(FolderRefused, match=r"is not empty \(notes\)"):
        await restored(FsStore(new / "cold"), new)
    (new / "notes").unlink()
    await restored(FsStore(new / "cold"), new)
    async with node_on(new) as node:
        assert await picture(node) == pictures[-1]
        with pytest.raises(FolderRefused, match="in use by another process"):
            await restored(FsStore(new / "cold"), new)
    with pytest.raises(FolderRefused, match="is not empty"):
        await restored(FsStore(new / "cold"), new)


class BusyStore(FsStore):
    """A store to which someone else writes a manifest while its segments are looked for."""

    async def list(self, prefix: str) -> list[ObjectInfo]:
        if prefix.startswith("segments/"):
            newest = (await manifests.find_manifests(self, 0))[0]
            await self.put(keys.manifest_key(0, newest.position), await self.get(newest.key))
        return await super().list(prefix)


async def test_a_store_that_changes_while_it_is_looked_at_is_refused_unless_it_is_taken_over(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "old", (1, 2))
    store = BusyStore(tmp_path / "old" / "cold")
    with pytest.raises(RestoreRefused, match="a server has written to it just now"):
        await restored(store, tmp_path / "new")
    assert len(await manifests.read_generations(store)) == 1
    assert not (tmp_path / "new").exists()
    new = NewFolder(tmp_path / "new", None)
    await restore(store, new, None, ignored, take_over=True)
    new.close()


async def test_a_store_that_lacks_something_is_refused_unless_that_is_accepted(tmp_path: Path) -> None:
    _, pictures = await fill(tmp_path / "old", (1, 2))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    lost, cut = [found.key for found in await store.list("segments/")][:2]
    await store.delete([lost, "blobs/b/x/y"])
    path = store.local_path(cut)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged) as refused:
        await restored(store, tmp_path / "new")
    assert [damage.name for damage in refused.value.damages] == [lost, cut, "blobs/b/x/y"]
    assert len(await manifests.read_generations(store)) == 1
    found = await restored(store, tmp_path / "new", accept=True)
    assert found.damages == refused.value.damages
    async with node_on(tmp_path / "new", FsStore(root)) as node:
        assert node.groups[0].describe("b", "text") == pictures[-1]["text"]


async def test_two_restores_at_once_make_one_node_each_in_a_generation_of_its_own_or_fail(
    tmp_path: Path,
) -> None:
    _, pictures = await fill(tmp_path / "old", (1,))
    root = tmp_path / "old" / "cold"
    stores = [FsStore(root) for _ in range(4)]
    made = await asyncio.gather(
        *(restored(store, tmp_path / f"new-{number}") for number, store in enumerate(stores)),
        return_exceptions=True,
    )
    numbers = [found.generation for found in made if isinstance(found, Restored)]
    assert sorted(numbers) == list(range(2, 2 + len(numbers)))
    for found in made:
        assert isinstance(found, Restored | RestoreRefused)
    newest = next(
        number
        for number, found in enumerate(made)
        if isinstance(found, Restored) and found.generation == max(numbers)
    )
    assert await seen(tmp_path / f"new-{newest}", root) == pictures[-1]


async def test_the_new_state_holds_together_and_nothing_of_it_is_collected_too_early(tmp_path: Path) -> None:
    await fill(tmp_path / "old", (1, 2))
    root = tmp_path / "old" / "cold"
    store = FsStore(root)
    before = await manifests.find_manifests(store, 0)
    source = await manifests.read_manifest(store, before[0].key)
    await restored(store, tmp_path / "new")
    newest = (await manifests.find_manifests(store, 0))[0]
    manifest = await manifests.read_manifest(store, newest.key)
    loaded = await load(store, manifest, newest.key)
    stored = loaded.state.stored
    assert newest.position == stored.flushed == 2 << GENERATION_SHIFT
    assert manifest.previous == before[0].key
    assert stored.ahead is None
    assert [state.key for state in stored.chain] == [state.path for state in manifest.state]
    assert {state.path for state in source.state} <= stored.replaced.keys()
    live = await manifests.read_live(store, 0)
    assert (live.generation, live.position) == (2, newest.position)
    assert [one.path for one in live.segments] == [one.key for one in loaded.state.segments]
    damages = await check_contents(store, loaded, ignored)
    assert {damage.name for damage in damages} <= {"blobs/b/x/y"}, "whose digest was made up"


def test_a_moment_is_a_position_a_time_or_how_long_ago() -> None:
    now = 10_000 * HOUR
    assert parse_moment("00000001099511627776", now) == Moment(position=1 << 40)
    assert parse_moment("2h ago", now) == Moment(time=now - 2 * HOUR)
    assert parse_moment("90 s ago", now) == Moment(time=now - 90_000_000)
    assert parse_moment("1970-01-01T01:00:00+00:00", now) == Moment(time=HOUR)
    assert parse_moment("1970-01-01t02:30:00.5+01:30", now) == Moment(time=HOUR + 500_000)
    beyond = ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00")
    unclear = (
        "yesterday",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01 00:00:00Z",
        "-5",
        "2 fortnights ago",
    )
    for wrong in (*unclear, "", *beyond):
        with pytest.raises(ValueError, match="neither a position nor a time"):
            parse_moment(wrong, now)


def test_positions_count_up_to_where_the_next_generation_began_from_them() -> None:
    def at(generation: int, number: int) -> int:
        return (generation << GENERATION_SHIFT) + number

    ends = [(), (at(1, 50),), (at(2, 0),), (at(1, 70), at(3, 9)), (at(4, 5),)]
    ended = {
        number: {str(group): end for group, end in enumerate(one)} for number, one in enumerate(ends, start=1)
    }
    lineage = Lineage(ended, 5)
    assert lineage.end_before(0, at(5, 99)) is None
    assert lineage.end_before(0, at(6, 1)) is None, "which is beyond the end, but not rewound"
    assert lineage.end_before(0, at(4, 5)) is None
    assert lineage.end_before(0, at(4, 6)) == at(4, 5)
    assert lineage.end_before(0, at(3, 1)) == at(1, 70), "the third was given up as a whole"
    assert lineage.end_before(0, at(2, 0)) == at(1, 70)
    assert lineage.end_before(0, at(1, 70)) is None, "and what the second had given up counts again"
    assert lineage.end_before(0, at(1, 71)) == at(1, 70)
    assert lineage.end_before(1, at(1, 1)) is None, "of a group that nothing is known of"
    assert Lineage({}, 1).end_before(0, at(1, 7)) is None
