"""A group with a store whose flushes, merges and collections happen when they are told to."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from ursula.cold.blobs import made_at
from ursula.cold.cache import Cache
from ursula.cold.objects import keys
from ursula.cold.objects.fs import FsStore
from ursula.cold.objects.temp_files import Unfinished
from ursula.cold.objects.ulid import new_ulid
from ursula.cold.segment.reader import Segments
from ursula.cold.state import manifest as manifests
from ursula.engine.clock import system_clock
from ursula.engine.flush.flusher import Flusher, FlushSettings
from ursula.engine.group.group import Group
from ursula.engine.keeper import KeeperRole
from ursula.engine.offline.verify import blobs_of
from ursula.engine.reads.cold_feed import FeedReads
from ursula.engine.reads.cold_stream import ColdReads
from ursula.engine.reads.deferred import Deferred
from ursula.engine.start.load_state import load, load_newest
from ursula.engine.upkeep.garbage import CollectSettings, GarbageCollector
from ursula.engine.upkeep.merger import Merger, MergeSettings
from ursula.log.file import FileLog
from ursula.model.commands import AnyCommand, Append, Create, Delete, ForkPoint, PublishSnapshot, Undelete
from ursula.model.outcomes import AnyOutcome, FeedPage, FeedRow, Page, Refused
from ursula.model.state import State

DAY = 86_400.0


class Tidied:
    """A group, and those who keep its store in order."""

    def __init__(self, group: Group, flusher: Flusher, merger: Merger, store: FsStore) -> None:
        self.group = group
        self.flusher = flusher
        self.merger = merger
        self.store = store

    async def do(self, command: AnyCommand) -> AnyOutcome:
        """Have a command done."""
        outcome = await self.group.propose_and_wait(command)
        assert not isinstance(outcome, Refused), (command, outcome)
        return outcome  # type: ignore[return-value]

    async def create(self, name: str, text: bytes = b"", fork: ForkPoint | None = None) -> None:
        """Make a stream of text."""
        content_type = None if fork else "text/plain"
        await self.do(Create("b", name, content_type, (text,) if text else (), make_bucket=True, fork=fork))

    async def append(self, name: str, *texts: bytes) -> None:
        """Append messages."""
        await self.do(Append("b", name, texts, "text/plain"))

    async def delete(self, name: str) -> None:
        """Delete a stream."""
        await self.do(Delete("b", name))

    async def undelete(self, name: str) -> AnyOutcome:
        """Bring a stream back, or not."""
        return await self.group.propose_and_wait(Undelete("b", name))  # type: ignore[return-value]

    async def trim(self, name: str, offset: int) -> str:
        """Publish a snapshot and let the stream begin there; returns the key of its blob."""
        blob = f"b/x/{new_ulid()}"
        await self.store.put(f"blobs/{blob}", b"snapshot")
        await self.do(
            PublishSnapshot("b", name, offset, blob, "text/plain", 8, f"sha256:{blob}", made_at=made_at(blob))
        )
        return f"blobs/{blob}"

    async def flush(self, tell: bool = True) -> None:
        """Flush, tell readers outside or leave that for later, and wait until memory is let go of."""
        self.flusher.request()
        self.flusher._live_at = time.monotonic()  # as if they were told just now
        await self.flusher.flush()
        if tell:
            await self.flusher.write_live_now()
        while self.group.state.residency.has_evictable:
            await asyncio.sleep(0)

    async def merge(self) -> None:
        """Merge and clean for as long as there is something to do."""
        while await self.merger.step():
            pass

    async def collect(self, keep: float, now: int | None = None) -> GarbageCollector:
        """Collect as if objects were kept so many seconds."""
        settings = CollectSettings(1, keep)
        clock = system_clock if now is None else lambda: now
        collector = GarbageCollector([self.group], [self.flusher], self.store, clock, settings)
        await collector.collect()
        return collector

    async def forget(self) -> None:
        """Have everything forgotten that may be: ended streams first, then what merges replaced."""
        for _ in range(2):
            await self.collect(0)
            await self.merge()
            await self.flush()
            await self.flush()
        await self.collect(0)

    async def read(self, name: str, offset: int = 0, bytes_max: int = 1 << 30) -> bytes | Refused:
        """What is in a stream from an offset on."""
        parts, wanted = [], offset
        while True:
            read = self.group.read("b", name, wanted, offset + bytes_max - wanted)
            page = await read.get() if isinstance(read, Deferred) else read
            if not isinstance(page, Page):
                return page
            parts += page.chunks
            if page.next_offset == page.tail or offset + bytes_max <= page.next_offset:
                return b"".join(parts)
            wanted = page.next_offset

    async def feed(self) -> list[tuple[int, FeedRow]]:
        """All rows of the bucket's feed, each with its position."""
        rows: list[tuple[int, FeedRow]] = []
        after: int | None = None
        while True:
            read = self.group.read_feed("b", after, None, 2000)
            page = await read.get() if isinstance(read, Deferred) else read
            assert isinstance(page, FeedPage), page
            rows += [(entry.position, row) for entry in page.entries for row in entry.rows]
            if page.next_position == page.tail:
                return rows
            after = page.next_position

    async def objects(self, prefix: str = "") -> set[str]:
        """What is in the store."""
        return {stored.key for stored in await self.store.list(prefix)}

    async def check_manifests(self) -> int:
        """Everything that a manifest names is there; returns how many manifests are."""
        return await check_manifests(self.store)


async def check_manifests(store: FsStore) -> int:
    """Everything that a manifest names is there, and it can be started from; returns how many are."""
    objects = {stored.key for stored in await store.list("")}
    found = await manifests.find_manifests(store, 0)
    for each in found:
        manifest = await manifests.read_manifest(store, each.key)
        state = (await load(store, manifest, each.key)).state
        named = {segment.key for segment in state.segments} | {f"blobs/{blob}" for blob in state.blobs}
        named |= {blob.key for blob in blobs_of(state)}
        named |= {stored.path for stored in manifest.state}
        if manifest.segment is not None:
            named.add(manifest.segment.path)
        assert named <= objects, (each.key, named - objects)
    return len(found)


@asynccontextmanager
async def tidied(folder: Path, keep_trimmed: bool = False) -> AsyncIterator[Tidied]:
    """A group on a folder, which may have been there before; stopped at the end."""
    store = FsStore(folder / "cold")
    begun = manifests.Generation(manifests.FORMAT, "c", 1, 1, 0)
    await store.create(keys.generation_key(1), manifests.encode(begun))
    log = await FileLog.open(folder / "log", generation=1, segment_bytes=4096)
    loaded = await load_newest(store, 0)
    start = log.first if loaded is None else loaded.manifest.position
    state = State(0) if loaded is None else loaded.state
    threads = ThreadPoolExecutor(2)
    segments, spools = Segments(store, Cache(0), threads), Cache(0)
    cold = ColdReads(state, store, segments, Cache(0))
    feed = FeedReads(state, cold, segments, spools=spools, threads=threads, folder=folder / "spools")
    group = Group(0, log, system_clock, start, state, cold=cold, feed=feed)
    unfinished = Unfinished(store, folder / "tmp")
    role = KeeperRole()
    settings = FlushSettings("c", 1, 1 << 30, DAY)
    flusher = Flusher(group, store, unfinished, cold.fetch, settings, role, loaded)
    merger = Merger(group, store, unfinished, segments, MergeSettings(keep_trimmed), role)
    task = asyncio.create_task(group.run())
    try:
        while not group.recovered and not task.done():
            await asyncio.sleep(0.001)
        yield Tidied(group, flusher, merger, store)
    finally:
        await group.stop()
        await asyncio.gather(task, return_exceptions=True)
        await spools.close()
        await store.close()
        threads.shutdown()
