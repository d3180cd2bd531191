"""Power loss while a node flushes, merges, collects and is restored: its folder holds what was promised."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from tests.engine.nodes import done, got, node_on
from tests.engine.test_restoring import restored
from tests.engine.tidying import check_manifests
from tests.faults.lossy_folder import LossyFolder, nothing_new, only_removals
from tests.faults.rounds import IS_LONG, seeded

from ursula.cold.blobs import made_at
from ursula.cold.objects import fs
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.ulid import new_ulid
from ursula.cold.state import manifest as manifests
from ursula.config import ColdSettings
from ursula.engine.clock import system_clock
from ursula.engine.node import Node
from ursula.engine.upkeep import merge_policy as neighbours
from ursula.engine.upkeep.garbage import CollectSettings, GarbageCollector
from ursula.model.commands import Append, Create, Delete, PublishSnapshot
from ursula.model.outcomes import Page

STREAMS = ("a", "b", "c")
COLD = ColdSettings(cache_bytes=0, flush_interval=3600.0)
SHARE = 1.0 if IS_LONG else 0.04
KEEP_SECONDS = 0.5
"""How long objects without a name are kept: on a busy machine, a flush must not take longer."""
"""Of how many moments it is seen what a power loss leaves; the last of each stage is always one of them."""


class Moment(NamedTuple):
    """What was left at a power loss, and what had been acknowledged by then."""

    folder: Path
    name: str
    acknowledged: dict[str, bytes]


class Story:
    """What is written, what of it was acknowledged, and the power losses meanwhile."""

    def __init__(
        self,
        disk: LossyFolder,
        left: Path,
        random: Random,
        share: float,
        only: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.disk = disk
        self.monkeypatch = monkeypatch
        self.sent: dict[str, bytes] = {}
        self.acknowledged: dict[str, bytes] = {}
        self.moments: list[Moment] = []
        self.passed = 0
        self._left = left
        self._random = random
        self._share = share
        self._only = only
        self._number = 0
        self._stage = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the story; the power fails in it, and at its end."""
        if self._only not in ("", name):
            yield
            return
        self._stage = name
        self.disk.on_moment = self._pass
        yield
        with self.disk.lock:
            self.disk.on_moment = lambda _: None
            self._lose_power("its end")

    async def write(self, node: Node, count: int) -> None:
        """Append to all streams, which are made if need be."""
        group = node.groups[0]
        for _ in range(count):
            for name in STREAMS:
                if name not in self.sent:
                    await done(group, Create("b", name, "text/plain", make_bucket=True))
                self._number += 1
                text = b"<%d %s>" % (self._number, b"x" * self._random.randrange(200))
                self.sent[name] = self.acknowledged.get(name, b"") + text
                await done(group, Append("b", name, (text,), "text/plain"))
                self.acknowledged[name] = self.sent[name]

    def _pass(self, what: str) -> None:
        if "fdatasync" in what:
            return  # of the log, which has such a test of its own
        self.passed += 1
        if self._random.random() < self._share:
            self._lose_power(what)

    def _lose_power(self, what: str) -> None:
        kinds = ("synced", "removed", "any")
        for kind in kinds if self._share == 1.0 else (self._random.choice(kinds),):
            folder = self._left / str(len(self.moments))
            acknowledged = dict(self.acknowledged)
            random = Random(self._random.getrandbits(64)) if kind == "any" else None
            self.disk.crash(folder, random, only_removals if kind == "removed" else nothing_new)
            self.moments.append(Moment(folder, f"{self._stage}: {what}, {kind}", acknowledged))


async def live(story: Story, old: Path, new: Path) -> None:
    """A node from its first start to its restore elsewhere, which goes on with the store."""
    with story.stage("start"):
        async with node_on(old, cold=COLD) as node:
            await story.write(node, 1)
    async with node_on(old, cold=COLD) as node:
        with story.stage("flush"):
            for _ in range(3):
                flushing = asyncio.create_task(node.flushers[0].flush_and_wait())
                await story.write(node, 3)
                await flushing
        with story.stage("merge"):
            assert len(node.groups[0].state.segments) >= 3
            story.monkeypatch.setattr(neighbours, "COUNT_MIN", 3)  # only now: the node merges by itself too
            story.monkeypatch.setattr(neighbours, "GROWTH_MIN", 1)
            # The node's merger may have looked at the table before that: it looks again once it has grown.
            await story.write(node, 1)
            await node.flushers[0].flush_and_wait()
            await merge(node)
            assert len(node.groups[0].state.segments) < 3
        with story.stage("collection"):
            await replace(node)
            await collect(node)
        await story.write(node, 1)
        await node.flushers[0].flush_and_wait()
    with story.stage("restore"):
        await restored(FsStore(old / "cold"), new)
    with story.stage("after the restore"):
        async with node_on(new, FsStore(old / "cold"), COLD) as node:
            await story.write(node, 2)
            await node.flushers[0].flush_and_wait()


async def merge(node: Node) -> None:
    """Merge whatever can be, and let the manifests know."""
    while await node.mergers[0].step():
        pass
    for _ in range(2):
        node.flushers[0].request()
        await node.flushers[0].flush_and_wait()


async def replace(node: Node) -> None:
    """Let there be snapshots and a stream that nobody needs any more."""
    group = node.groups[0]
    await done(group, Create("b", "gone", "text/plain", (b"soon",)))
    for _ in range(2):
        blob = f"b/x/{new_ulid()}"
        await node.store.put(f"blobs/{blob}", b"snapshot")
        snapshot = PublishSnapshot("b", "gone", 0, blob, "text/plain", 8, "sha256:x", made_at=made_at(blob))
        await done(group, snapshot)
    await node.flushers[0].flush_and_wait()
    await done(group, Delete("b", "gone"))
    await merge(node)


async def collect(node: Node) -> None:
    """Remove what was replaced, as if nothing was kept for long."""
    settings = CollectSettings(node.generation, KEEP_SECONDS)
    collector = GarbageCollector(node.groups, node.flushers, node.store, system_clock, settings)
    for _ in range(2):
        await asyncio.sleep(KEEP_SECONDS * 1.2)
        await collector.collect()
        await merge(node)
    assert collector.collected_count > 10


async def check(moment: Moment, sent: dict[str, bytes]) -> None:
    """Start from what is left, or restore it if that was begun; everything is there, and it goes on."""
    folder, new, root = moment.folder / "old", moment.folder / "new", moment.folder / "old" / "cold"
    store = FsStore(root)
    await check_manifests(store)
    if len(await manifests.read_generations(store)) > 1:
        if not (new / "ursula.json").exists():
            await restored(FsStore(root), new)
        folder = new
    async with node_on(folder, FsStore(root), COLD) as node:
        await check_node(node, moment, sent)
        for name in moment.acknowledged:
            await done(node.groups[0], Append("b", name, (b"more",), "text/plain"))
        await node.flushers[0].flush_and_wait()
        for name in moment.acknowledged:
            assert (await content(node, name)).endswith(b"more")
    await check_manifests(store)
    await store.close()


async def check_node(node: Node, moment: Moment, sent: dict[str, bytes]) -> None:
    """What was acknowledged is there, and every object that has a name."""
    for name, acknowledged in moment.acknowledged.items():
        found = await content(node, name)
        assert found.startswith(acknowledged), (name, len(found), len(acknowledged))
        assert sent[name].startswith(found), name
    state = node.groups[0].state
    for key in (*(segment.key for segment in state.segments), *(f"blobs/{blob}" for blob in state.blobs)):
        assert await node.store.size(key) > 0


async def content(node: Node, name: str) -> bytes:
    """All of a stream."""
    page = await got(node.groups[0].read("b", name, 0, 1 << 30))
    assert isinstance(page, Page), page
    return b"".join(page.chunks)


def told(tmp_path: Path, share: float = SHARE, only: str = "") -> Story:
    """The whole story on a folder that can lose power, in all stages or only in one."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "left").mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk = LossyFolder(tmp_path / "disk", monkeypatch)
        story = Story(disk, tmp_path / "left", seeded(f"store {only}"), share, only, monkeypatch)
        asyncio.run(live(story, tmp_path / "disk" / "old", tmp_path / "disk" / "new"))
        disk.close()
    return story


@pytest.mark.timeout(1800)
def test_power_loss_at_any_step_of_a_store_takes_back_nothing(tmp_path: Path) -> None:
    story = told(tmp_path)
    for moment in story.moments:
        print(moment.name)
        asyncio.run(check(moment, story.sent))
        shutil.rmtree(moment.folder)
    print(f"{len(story.moments)} power losses at {story.passed} moments")


SYNCS = [("_sync_names", "flush"), ("_sync_file", "merge"), ("_sync_removals", "collection")]


@pytest.mark.parametrize(("function", "stage"), SYNCS if IS_LONG else SYNCS[:1])
def test_a_sync_that_is_left_out_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, stage: str
) -> None:
    """Of names that were given, of bytes, and of names that were taken away."""
    with monkeypatch.context() as patched:
        patched.setattr(fs if function == "_sync_file" else FsStore, function, lambda *_: None)
        story = told(tmp_path, 1.0, stage)
    for number, moment in enumerate(story.moments):
        try:
            asyncio.run(check(moment, story.sent))
        except Exception as error:
            print(f"{number} of {len(story.moments)}: {moment.name}: {error}")
            return
    pytest.fail("nobody would miss it")
