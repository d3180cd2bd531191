"""A node: which groups there are, where they run, and which of them owns a bucket.

The only place that knows how many groups there are.
"""

import asyncio
import gc
import logging
import os
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ..cold.blobs import Blobs, BlobWriter
from ..cold.cache import Cache
from ..cold.objects.fs import FsStore
from ..cold.objects.store import ObjectDamaged, Store, StoreFailed, StoreUnavailable
from ..cold.objects.temp_files import Unfinished
from ..cold.segment.reader import Segments
from ..cold.staging import new_key
from ..cold.state import manifest as manifests
from ..cold.state.generation_history import Lineage
from ..config import Cold
from ..log.file import FileLog
from ..log.interface import COUNTER_MASK
from ..log.memory import MemoryLog
from ..model.commands import IngestBegin
from ..model.outcomes import AnyOutcome, BucketDescription
from .bulk_write import Check, Ingesters
from .clock import Clock, system_clock
from .cold_status import CacheStatus, ColdStatus, UpkeepStatus, cache_status, cold_status
from .data_folder import DataFolder
from .failures import Failure
from .flush.flusher import Flusher, FlushSettings
from .group.group import Group
from .heartbeat import Heart, RunningServer
from .hot_bytes import HotBytesReport, HotTotals, hot_totals, merge_reports, report_hot_bytes
from .load_state import LoadedState, StoreRefused, load_newest
from .reads.blobs import BlobReads
from .reads.cold_feed import FeedReads
from .reads.cold_stream import ColdReads
from .status import GroupStatus
from .upkeep.garbage import CollectSettings, GarbageCollector
from .upkeep.merger import Merger, MergeSettings
from .upkeep.replace_segments import replace_segments

YOUNG_COLLECTION_SECONDS = 0.1
COLLECTIONS_PER_LOOK = 10
RECOVERY_LOOK_SECONDS = 0.01
STORE_RETRY_SECONDS = 1.0
DECODING_THREADS = max(1, min(4, len(os.sched_getaffinity(0)) // 2))
"""The others are for the event loop and for those who send: threads that take turns on a core help nobody."""

TIDY_SECONDS_MAX = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Node:
    """The groups of this process. `folder` is None for a node that keeps everything in memory only."""

    def __init__(
        self,
        folder: DataFolder | None,
        log_segment_bytes: int,
        clock: Clock = system_clock,
        cold: Cold | None = None,
        store: Store | None = None,
        spool_bytes: int = 8 << 30,
        server: RunningServer | None = None,
        check_row: Check | None = None,
    ) -> None:
        """`server` tells those who look at the store who serves from it; without one nobody is told.

        `check_row` says which rows of a bulk write no stream could take.
        """
        self._folder = folder
        self.cold = cold or Cold()
        self._log_segment_bytes = log_segment_bytes
        self._clock = clock
        self.cluster = folder.identity.cluster if folder else secrets.token_hex(8)
        self.generation = folder.identity.generation if folder else 1
        self.feed_incarnation = f"{self.cluster}-{self.generation}"
        self.group_count = folder.identity.groups if folder else 1
        self.lineage = Lineage({}, self.generation)
        self.groups: list[Group] = []
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="ursula-")
        root = folder.path if folder else Path(self._temporary.name)  # type: ignore[union-attr]
        self.store: Store = store or FsStore(root / "cold")
        self.scratch = root / "tmp"
        self.blobs = Blobs(self.store, self.scratch, beside=manifests.generation_key(self.generation))
        self.unfinished = Unfinished(self.store, self.scratch)
        self._threads = ThreadPoolExecutor(DECODING_THREADS, "ursula-cold")
        self.cache = Cache(self.cold.cache_bytes)
        self.spools = Cache(spool_bytes)
        self.segments = Segments(self.store, self.cache, self._threads)
        self.flushers: list[Flusher] = []
        self.mergers: list[Merger] = []
        self.collector = GarbageCollector(
            self.groups,
            self.flushers,
            self.store,
            clock,
            CollectSettings(self.generation, self.cold.keep_replaced),
        )
        self._ingesters = Ingesters(self.store, self.scratch, check_row)
        self._heart = (
            Heart(self.store, clock, self.cluster, self.generation, server) if server is not None else None
        )
        self.store_problem: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[Any] | None = None
        self.recovered = False  # whether every group has replayed its log
        self._began_at = time.monotonic()
        self._recovered_at: float | None = None
        self._surveying: asyncio.Task[HotBytesReport] | None = None

    async def run(self) -> None:
        """Open the logs, replay them and serve, until `stop`. Raises what made that impossible."""
        self._starting = asyncio.current_task()
        await asyncio.to_thread(self._clear_scratch)
        await _tidy(self.store.forget_unfinished())
        await self._patiently(self._enter_store)
        if self._heart is not None:
            self._workers.append(asyncio.create_task(self._heart.run()))
        for number in range(self.group_count):
            await self._open_group(number)
        self._starting = None
        self._workers += [asyncio.create_task(work) for work in self._work()]
        await asyncio.gather(*(group.run() for group in self.groups), *self._workers)

    def _work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on beside the requests, until the node stops."""
        yield self._watch_recovery()
        for flusher in self.flushers:
            yield flusher.run()
        for merger in self.mergers:
            yield merger.run()
        yield self.collector.run()

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what needs the store; while it cannot be reached, say so and try again."""
        while True:
            try:
                found = await work()
            except StoreUnavailable as error:
                if self.store_problem != str(error):
                    logger.error("waiting for the store: %s", error)
                self.store_problem = str(error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except StoreFailed as error:
                raise StoreRefused(f"{error}: put it back from a backup, or see `ursula restore`") from None
            else:
                self.store_problem = None
                return found

    async def _enter_store(self) -> None:
        """Begin the first generation in an empty store; refuse one that is someone else's, or ahead of us."""
        own = manifests.Generation(
            manifests.FORMAT, self.cluster, self.generation, self.group_count, self._clock()
        )
        try:
            found = await manifests.read_generations(self.store)
        except ObjectDamaged as error:
            raise StoreRefused(f"{error}: {manifests.GENERATION_HINT}") from None
        if not found and self.generation == 1:
            await self._begin_store(manifests.encode(own))
            found = await manifests.read_generations(self.store)
        if any(generation.cluster != self.cluster for generation in found):
            raise StoreRefused(
                f"the store {self.store.root} belongs to the cluster {found[-1].cluster}, and this data "
                f"folder to {self.cluster}: choose another cold.root, or make a node from the store with "
                "`ursula restore`"
            )
        if found and found[-1].groups != self.group_count:
            raise StoreRefused(
                f"the store {self.store.root} has {found[-1].groups} groups, and ursula.json of this data "
                f"folder says {self.group_count}: put that file back from a backup"
            )
        newest = manifests.newest_generation(found)
        if newest != self.generation:
            raise StoreRefused(
                f"the store {self.store.root} is in generation {newest}, and this data folder in "
                f"{self.generation}: a restore made another node the one that goes on; see `ursula restore`"
            )
        self.lineage = Lineage({one.generation: one.ended for one in found}, self.generation)

    async def _begin_store(self, generation: bytes) -> None:
        """Make the first object. A new node whose own disk does not take it need not wait."""
        try:
            await self.store.create(manifests.generation_key(1), generation)
        except StoreUnavailable as error:
            is_new = self._folder is not None and not self._folder.log_path(0).exists()
            if is_new and self.store.local_range() is not None:
                raise StoreRefused(f"cannot begin the store: {error}") from None
            raise

    async def _open_group(self, number: int) -> None:
        """Make a group of the newest manifest and the log after it."""
        log = await self._open_log(number)
        loaded = await self._patiently(lambda: load_newest(self.store, number, log.first))
        start = log.first if loaded is None else loaded.manifest.position
        _check_fit(log.measures.first, log.measures.tail, loaded)
        group = Group(
            number,
            log,
            self._clock,
            start,
            None if loaded is None else loaded.state,
            self.cold.max_hot_bytes // self.group_count,
        )
        group.evictor.attach_cache(self.cache, self.cold.flush_interval)
        cold = ColdReads(group.state, self.store, self.segments, self.cache)
        feed = FeedReads(
            group.state, cold, self.segments, self.spools, self._threads, self.scratch / "spools"
        )
        group.connect(cold, feed)
        settings = FlushSettings(
            self.cluster, self.generation, self.cold.flush_size, self.cold.flush_interval
        )
        past_cache = Cache(0)
        fetch = BlobReads(self.store, past_cache).fetch
        flusher = Flusher(group, self.store, self.unfinished, fetch, settings)
        if loaded is not None:
            flusher.manifest, flusher.manifest_position = loaded.key, loaded.manifest.position
            flusher.manifest_at = loaded.manifest.at
            flusher.previous_position = loaded.previous_position
            await group.look_after_all(loaded.deadlines)
        self.groups.append(group)
        self.flushers.append(flusher)
        merging = MergeSettings(self.cold.keep_trimmed)
        inputs = Segments(self.store, past_cache, self._threads)
        self.mergers.append(Merger(group, self.store, self.unfinished, inputs, merging))

    async def stop(self) -> None:
        """Finish what was proposed and close the logs."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._ingesters.stop()
        for group in self.groups:
            await group.stop()
        await self._note_applied()
        if self._heart is not None:
            await self._heart.end()
        await self.cache.close()
        await self.spools.close()
        await self.blobs.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=TIDY_SECONDS_MAX)
        await self.store.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._folder is not None:
            self._folder.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    # Bulk reads and writes

    @property
    def store_root(self) -> str:
        """Where the objects of the store are, for readers that fetch them themselves."""
        return self.store.root

    async def stage(self, bucket: str, writer: BlobWriter) -> str:
        """Keep a file of rows for a bulk write; the key of the object."""
        key = new_key(bucket, writer.digest)
        await self.store.put_file(key, writer.path)
        return key

    async def ingest(self, command: IngestBegin, patience_seconds: float) -> AnyOutcome | Failure:
        """Begin a bulk write, or go on with it; how far it came within so many seconds."""
        return await self._ingesters.ingest(self.group_of(command.bucket), command, patience_seconds)

    async def replace_segments(self, group: int, old: Sequence[str], new: str) -> AnyOutcome | Failure:
        """Let one segment take the place of neighbours whose rows it has."""
        return await replace_segments(self.store, self.groups[group], old, new)

    # What an operator asks for

    async def flush(self) -> list[int]:
        """Move everything that is there now to the store; the position of each group."""
        return await asyncio.gather(*(flusher.request() for flusher in self.flushers))

    def request_base(self) -> None:
        """Have the next flush write the whole state, and have it soon."""
        for flusher in self.flushers:
            flusher.request_base()

    async def purge_log(self) -> list[int]:
        """Drop the log entries that the newest manifest stands for; where each log begins now."""
        return [await flusher.purge() for flusher in self.flushers]

    # What there is

    def rewound_to(self, group: int, position: int) -> int | None:
        """Where the log went back to, if a restore went back behind this position."""
        return self.lineage.end_before(group, position)

    @property
    def hot_bytes_max(self) -> int:
        """How many bytes may wait for the store."""
        return self.cold.max_hot_bytes

    @property
    def flush_interval_seconds(self) -> float:
        """How long something may wait to be flushed."""
        return self.cold.flush_interval

    def group_of(self, bucket: str) -> Group:
        """The group that owns a bucket."""
        if self.group_count == 1:
            return self.groups[0]
        return self.groups[zlib.crc32(bucket.encode()) % self.group_count]

    @property
    def progress(self) -> float:
        """How much of all logs has been replayed, from 0 to 1."""
        return sum(group.progress for group in self.groups) / self.group_count

    @property
    def busy_with(self) -> str:
        """What keeps a node that has not recovered."""
        if self.store_problem is not None:
            return f"waiting for the store: {self.store_problem}"
        return "the log is being replayed"

    @property
    def log_problem(self) -> str | None:
        """Why a log does not take entries."""
        return next((group.log_problem for group in self.groups if group.log_problem is not None), None)

    def now(self) -> int:
        """The time as this node sees it, in microseconds since 1970."""
        return self._clock()

    def look_at_deadlines(self) -> None:
        """End what has expired: the clock has been moved."""
        for group in self.groups:
            group.look_at_deadlines()

    @property
    def recovery_seconds(self) -> float:
        """How long the start took, or has taken so far."""
        return (self._recovered_at or time.monotonic()) - self._began_at

    def statuses(self) -> list[GroupStatus]:
        """What an operator may see of every group; none are there before their logs are open."""
        return [group.status() for group in self.groups]

    def cold_statuses(self) -> list[ColdStatus]:
        """What an operator may see of the store, group by group."""
        return [
            cold_status(group, flusher) for group, flusher in zip(self.groups, self.flushers, strict=True)
        ]

    def cache_statuses(self) -> dict[str, CacheStatus]:
        """What an operator may see of what is kept of the store, by kind."""
        return {"row_groups": cache_status(self.cache), "spools": cache_status(self.spools)}

    def upkeep_status(self) -> UpkeepStatus:
        """What was fetched from the store, merged and collected since the start."""
        return UpkeepStatus(
            fetch_count=self.segments.fetch_count,
            fetched_bytes=self.segments.fetched_bytes,
            merged_count=sum(merger.merged_count for merger in self.mergers),
            merged_bytes=sum(merger.merged_bytes for merger in self.mergers),
            collected_count=self.collector.collected_count,
            collected_bytes=self.collector.collected_bytes,
        )

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""
        found = [group.state.reads.list_buckets(after, count) for group in self.groups]
        return list(islice(merge(*found, key=attrgetter("name")), count))

    async def hot_totals(self) -> HotTotals:
        """All bytes in memory, and how many streams are parked."""
        found = [await hot_totals(group.state) for group in self.groups]
        return HotTotals(sum(part.hot_bytes for part in found), sum(part.parked_streams for part in found))

    async def report_hot_bytes(self) -> HotBytesReport:
        """Where the bytes are. Those who ask while it is being found out get the same answer."""
        if self._surveying is None or self._surveying.done():
            self._surveying = asyncio.create_task(self._survey())
        return await asyncio.shield(self._surveying)

    async def _survey(self) -> HotBytesReport:
        return merge_reports([await report_hot_bytes(group.state) for group in self.groups])

    async def _open_log(self, number: int) -> FileLog | MemoryLog:
        if self._folder is None:
            return MemoryLog(generation=self.generation)
        return await FileLog.open(
            self._folder.log_path(number),
            generation=self.generation,
            segment_bytes=self._log_segment_bytes,
            applied=self._folder.applied(number),
        )

    def _clear_scratch(self) -> None:
        """Remove what a killed process left behind."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def forget_blob(self, key: str) -> None:
        """Remove a blob that was stored for nothing: it did not come to be shown."""
        self._spawn(_tidy(self.blobs.remove(key)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch_recovery(self) -> None:
        """Serve once all is replayed, keep that out of garbage collection, and collect only young objects."""
        gc.disable()
        while not all(group.recovered for group in self.groups):
            await asyncio.sleep(RECOVERY_LOOK_SECONDS)
        gc.collect()
        gc.freeze()
        self.recovered = True
        self._recovered_at = time.monotonic()
        while True:
            for _ in range(COLLECTIONS_PER_LOOK):
                await asyncio.sleep(YOUNG_COLLECTION_SECONDS)
                gc.collect(1)  # often, so that none takes long, however much is written
            for group in self.groups:
                group.evictor.tick()
                group.look_at_clock()
            await self._note_applied()

    async def _note_applied(self) -> None:
        """Leave a note of how long the logs are, so that the next start notices one that lost its end."""
        if self._folder is not None and len(self.groups) == self.group_count:
            await asyncio.to_thread(self._folder.note_applied, [group.applied for group in self.groups])


def _check_fit(first: int, tail: int, loaded: LoadedState | None) -> None:
    """Refuse to start from a log that does not go on where the store ends."""
    if loaded is None:
        if first & COUNTER_MASK:
            raise StoreRefused(
                f"the log begins after position {first}, and the store has no manifest of what was before: "
                "is cold.root, or cold.s3_bucket, the one that this node always had?"
            )
        return
    position = loaded.manifest.position
    if not first <= position <= tail:
        raise StoreRefused(
            f"the store has everything up to position {position}, and the log has ({first}, {tail}]: they do "
            "not fit. Put the log back from a backup, or make a new node from the store with `ursula restore`"
        )


async def _tidy(removing: Awaitable[None]) -> None:
    """Remove what is only in the way. What cannot be removed now is at a later time: nobody waits for it."""
    try:
        await removing
    except StoreFailed as error:
        logger.warning("something that nobody needs could not be removed: %s", error)
