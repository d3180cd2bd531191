"""A node: its groups, their background work, and which group owns a bucket.

In the server, this is the only place that knows how many groups there are. (`spark` computes the group of a
bucket too, from the number of groups in the store.)
"""

import asyncio
import gc
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ..cold.blobs import Blobs, BlobWriter
from ..cold.cache import Cache
from ..cold.objects import keys
from ..cold.objects.fs import FsStore
from ..cold.objects.keys import staged_key
from ..cold.objects.store import Store, StoreFailed, StoreUnavailable
from ..cold.objects.temp_files import Unfinished
from ..cold.segment.reader import Segments
from ..cold.state.generation_history import Lineage
from ..cold.state.placement import group_of
from ..config import ColdSettings, LogKind
from ..histogram import Histogram
from ..log.file import FileLog
from ..log.interface import EntriesTrimmed, Log, LogDamaged, LogUnavailable
from ..log.memory import MemoryLog
from ..model.commands import IngestBegin
from ..model.outcomes import AnyOutcome, BucketDescription, Refused
from ..model.state import State
from .agreement import find_disagreement
from .background import BackgroundTasks
from .bulk_write import Check, Ingesters
from .clock import Clock, system_clock
from .failures import FELL_BEHIND, Failure, NotCurrent
from .flush.flusher import Flusher, FlushSettings
from .group.evictor import Evictor
from .group.group import Group
from .group.large_entries import LargeEntries
from .keeper import KeeperRole
from .peers import Peers
from .reads.blobs import BlobReads
from .reads.cold_feed import FeedReads
from .reads.cold_stream import ColdReads
from .start.data_folder import DataFolder, Identity, new_identity
from .start.first_state import load_protected
from .start.heartbeat import Heart, RunningServer
from .start.load_state import StoreRefused
from .start.store_identity import enter_store
from .status.cluster_status import GroupReport
from .status.cold_status import CacheStatus, ColdStatus, UpkeepStatus, cache_status
from .status.group_status import GroupStatus
from .status.hot_bytes import HotBytesReport, HotTotals, hot_totals, merge_reports, report_hot_bytes
from .upkeep.garbage import CollectSettings, GarbageCollector
from .upkeep.merger import Merger, MergeSettings
from .upkeep.replace_segments import replace_segments

YOUNG_OBJECTS_MAX = 2000
"""Python collects garbage whenever there are this many more objects than before. Every request waits
meanwhile: half a millisecond, and six if it happened only once after a thousand clients had connected."""

NO_FULL_COLLECTION = 1 << 30
TICK_SECONDS = 1.0
RECOVERY_CHECK_SECONDS = 0.01
STORE_RETRY_SECONDS = 1.0
PROTECT_SECONDS = 1.0
AGREEMENT_SECONDS = 1.0
RESTART_SECONDS = 1.0
DECODING_THREADS = max(1, min(4, len(os.sched_getaffinity(0)) // 2))
"""The other cores are for the event loop and for clients: threads that share a core gain nothing."""

TIDY_SECONDS_MAX = 1.0
LOAD_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Node:
    """The groups of this process. Implements `NodeApi`."""

    def __init__(
        self,
        log: LogKind,
        folder: DataFolder | None,
        log_segment_bytes: int,
        clock: Clock = system_clock,
        cold: ColdSettings | None = None,
        store: Store | None = None,
        spool_bytes: int = 8 << 30,
        server: RunningServer | None = None,
        check_row: Check | None = None,
        identity: Identity | None = None,
        role: KeeperRole | None = None,
        write_wait_seconds: float | None = None,
        open_shared: Callable[[int], Log] | None = None,
        peers: Peers | None = None,
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        """`log` says where the log is kept. A node with a durable log needs a data folder; any other must not
        have one, since the store in it would outlive the log.

        `server` identifies this node in its heartbeat in the store; without it there is no heartbeat.
        `check_row` says which rows of a bulk write no stream could accept. `identity` is that of a node
        without a folder. A node without a `role` is always the keeper, and one without `peers` is alone.
        `write_wait_seconds` is how long a request may wait for the log. `open_shared` opens the log of a
        group that the nodes of a cluster share. `on_restart` is called when live reads must end: the node
        drops its state, or must not serve a group any more.
        """
        if log.is_durable != (folder is not None):
            needs = "needs a data folder" if log.is_durable else "must not have a data folder"
            raise ValueError(f"a node with server.log = {log} {needs}")
        self._log = log
        self._folder = folder
        self.cold = cold or ColdSettings()
        self._log_segment_bytes = log_segment_bytes
        self._clock = clock
        self._role = role or KeeperRole()
        self._open_shared = open_shared
        self._peers = peers or Peers()
        self._write_wait_seconds = write_wait_seconds
        self._identity = folder.identity if folder else identity or new_identity()
        self.cluster = self._identity.cluster
        self.generation = self._identity.generation
        self.feed_incarnation = f"{self.cluster}-{self.generation}"
        self.group_count = self._identity.groups
        self.lineage = Lineage({}, self.generation)
        self.groups: list[Group] = []
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="ursula-")
        root = folder.path if folder else Path(self._temporary.name)  # type: ignore[union-attr]
        self.store: Store = store or FsStore(root / "cold")
        self.scratch = root / "tmp"
        self.blobs = Blobs(self.store, self.scratch, beside=keys.generation_key(self.generation))
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
        self._tasks = BackgroundTasks()
        self._workers: list[asyncio.Task[None]] = []
        self._serving: list[asyncio.Task[None]] = []
        self._heart_task: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[Any] | None = None
        self.load_seconds = Histogram(LOAD_SECONDS)
        """How long it took to load the state of a group from the store, each time."""
        self.recovered = False  # whether every group has replayed its log
        self._began_at = time.monotonic()
        self._recovered_at: float | None = None
        self._hot_bytes_task: asyncio.Task[HotBytesReport] | None = None
        self._on_restart = on_restart

    async def run(self) -> None:
        """Open the logs, replay them and serve until `stop`. Raises the error that makes that impossible."""
        self._starting = asyncio.current_task()
        await asyncio.to_thread(self._clear_scratch)
        await _tidy(self.store.forget_unfinished())
        self.lineage = await self._with_retries(self._enter_store)
        if self._heart is not None:
            self._heart_task = asyncio.create_task(self._heart.run())
        while True:
            self._starting, began_at = asyncio.current_task(), time.monotonic()
            try:
                await self._run_groups()
                return
            except EntriesTrimmed as error:
                problem = str(error)  # the exception itself refers to the state, which must be freed
            self._starting = asyncio.current_task()
            logger.warning("%s: %s", FELL_BEHIND, problem)
            await self._drop_groups(FELL_BEHIND)
            if time.monotonic() - began_at < RESTART_SECONDS:
                await asyncio.sleep(RESTART_SECONDS)

    async def _run_groups(self) -> None:
        """Open the groups and serve until `stop`. EntriesTrimmed means that they must be opened anew."""
        for number in range(self.group_count):
            await self._open_group(number)
        self._starting = None
        self._workers = [asyncio.create_task(work) for work in self._work()]
        self._serving = [asyncio.create_task(group.run()) for group in self.groups]
        others = () if self._heart_task is None else (self._heart_task,)
        await asyncio.gather(*self._serving, *self._workers, *others)

    async def _drop_groups(self, reason: str) -> None:
        """Drop everything that was loaded. Requests under way are answered, and live reads end."""
        self.recovered = False
        self._on_restart()
        for group in self.groups:
            group.abandon(reason)
        for task in (*self._serving, *self._workers):
            task.cancel()
        await asyncio.gather(*self._serving, *self._workers, return_exceptions=True)
        await self._ingesters.drop()
        if self._hot_bytes_task is not None:
            self._hot_bytes_task.cancel()
        for group in self.groups:
            await group.log.close()
        for objects in (self.groups, self.flushers, self.mergers, self._serving, self._workers):
            objects.clear()
        gc.unfreeze()  # the state was frozen when it was loaded; now it must be freed
        gc.collect()

    def _work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The background work, until the node stops."""
        yield self._watch_recovery()
        yield self._protect_log()
        yield self._check_agreement()
        for flusher in self.flushers:
            yield flusher.run()
        for merger in self.mergers:
            yield merger.run()
        yield self.collector.run()

    async def _with_retries(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do some work that needs store or log; while one cannot be reached, report that and retry."""
        while True:
            try:
                found = await work()
            except (StoreUnavailable, LogUnavailable) as error:
                if self.store_problem != str(error):
                    place = "store" if isinstance(error, StoreUnavailable) else "log"
                    logger.error("waiting for the %s: %s", place, error)
                self.store_problem = str(error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except StoreFailed as error:
                raise StoreRefused(f"{error}: put it back from a backup, or see `ursula restore`") from None
            else:
                self.store_problem = None
                return found

    async def _enter_store(self) -> Lineage:
        is_file = self._log is LogKind.FILE
        is_new = is_file and self._folder is not None and not self._folder.log_path(0).exists()
        return await enter_store(self.store, self._identity, self._clock(), is_new=is_new)

    async def _open_group(self, number: int) -> None:
        """Open a group from the newest manifest and the log after it."""
        log = await self._open_log(number)
        began_at = time.monotonic()
        loaded = await self._with_retries(lambda: load_protected(self.store, number, log))
        self.load_seconds.add(time.monotonic() - began_at)
        start = log.first if loaded is None else loaded.manifest.position
        state = State(number) if loaded is None else loaded.state
        cold = ColdReads(state, self.store, self.segments, self.cache)
        feed = FeedReads(
            state,
            cold,
            self.segments,
            spools=self.spools,
            threads=self._threads,
            folder=self.scratch / "spools",
        )
        group = Group(
            number,
            log,
            self._clock,
            start,
            state,
            hot_bytes_max=self.cold.max_hot_bytes // self.group_count,
            cold=cold,
            feed=feed,
            evictor=Evictor(state, self.cache, self.cold.flush_interval),
            role=self._role,
            write_wait_seconds=self._write_wait_seconds,
            large_entries=LargeEntries(self.store),
            peers=self._peers,
        )
        settings = FlushSettings(
            self.cluster, self.generation, self.cold.flush_size, self.cold.flush_interval
        )
        past_cache = Cache(0)
        fetch = BlobReads(self.store, past_cache).fetch
        flusher = Flusher(
            group, self.store, self.unfinished, fetch, settings, self._role, loaded, self._peers
        )
        if loaded is not None:
            await group.expiry.track_deadlines(loaded.deadlines)
        self.groups.append(group)
        self.flushers.append(flusher)
        merging = MergeSettings(self.cold.keep_trimmed)
        inputs = Segments(self.store, past_cache, self._threads)
        self.mergers.append(
            Merger(
                group,
                self.store,
                self.unfinished,
                segments=inputs,
                settings=merging,
                role=self._role,
                clock=self._clock,
            )
        )

    async def stop(self) -> None:
        """Finish the commands that were proposed, and close the logs."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        workers = [*self._workers, *(() if self._heart_task is None else (self._heart_task,))]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._ingesters.stop()
        for group in self.groups:
            await group.stop()
        await self._note_applied()
        if self._heart is not None:
            await self._heart.end()
        await self.cache.close()
        await self.spools.close()
        await self.blobs.close()
        await self._tasks.wait(TIDY_SECONDS_MAX)
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
        """Store a file of rows for a bulk write; returns the key of the object."""
        key = staged_key(bucket, writer.digest)
        await self.store.put_file(key, writer.path)
        return key

    async def ingest(self, command: IngestBegin, patience_seconds: float) -> AnyOutcome | Failure:
        """Begin or continue a bulk write; returns its progress when it ends or after `patience_seconds`."""
        return await self._ingesters.ingest(self.group_of(command.bucket), command, patience_seconds)

    async def replace_segments(self, group: int, old: Sequence[str], new: str) -> AnyOutcome | Failure:
        """Replace neighbouring segments with one that has their rows."""
        return await replace_segments(self.store, self.groups[group], old, new)

    # Requests of operators

    async def flush(self) -> list[int] | Failure:
        """Flush everything that was written until now; returns the position of each group."""
        found = await asyncio.gather(*(flusher.flush_and_wait() for flusher in self.flushers))
        failures = [one for one in found if isinstance(one, Failure)]
        return failures[0] if failures else [one for one in found if isinstance(one, int)]

    async def request_base(self) -> Refused | Failure | None:
        """Request a flush soon that writes the whole state."""
        for flusher in self.flushers:
            problem = await flusher.request_base()
            if problem is not None:
                return problem
        return None

    async def purge_log(self) -> list[int]:
        """Trim the logs to the newest manifests; returns where each log now begins."""
        return [await flusher.purge() for flusher in self.flushers]

    # Lookups and status

    def rewound_to(self, group: int, position: int) -> int | None:
        """The position that a restore went back to, if that is before this position."""
        return self.lineage.end_before(group, position)

    @property
    def hot_bytes_max(self) -> int:
        """How many bytes may be hot before writes are rejected."""
        return self.cold.max_hot_bytes

    @property
    def flush_interval_seconds(self) -> float:
        """How long written data may wait to be flushed."""
        return self.cold.flush_interval

    def group_of(self, bucket: str) -> Group:
        """The group that owns a bucket."""
        try:
            return self.groups[0 if self.group_count == 1 else group_of(bucket, self.group_count)]
        except IndexError:
            raise NotCurrent("the node is starting") from None

    @property
    def is_keeper(self) -> bool:
        """Whether this node is the keeper."""
        return self._role.is_held

    @property
    def progress(self) -> float:
        """How much of all logs has been replayed, from 0 to 1."""
        return sum(group.progress for group in self.groups) / self.group_count

    @property
    def busy_with(self) -> str:
        """Why a node has not recovered yet."""
        if self.store_problem is not None:
            return f"waiting for the store: {self.store_problem}"
        return "the log is being replayed"

    @property
    def log_problem(self) -> str | None:
        """Why a log does not accept entries."""
        return next((group.log_problem for group in self.groups if group.log_problem is not None), None)

    @property
    def disagreement(self) -> str | None:
        """Why this node must not serve a group: its state contradicts that of other nodes."""
        return next((group.disagreement for group in self.groups if group.disagreement is not None), None)

    def now(self) -> int:
        """The time as this node sees it, in microseconds since 1970."""
        return self._clock()

    def check_deadlines(self) -> None:
        """Expire the streams whose deadline has passed: the clock was moved, which timers do not notice."""
        for group in self.groups:
            if group.recovered:
                group.expiry.tick()

    @property
    def recovery_seconds(self) -> float:
        """How long the start took, or has taken so far."""
        return (self._recovered_at or time.monotonic()) - self._began_at

    def statuses(self) -> list[GroupStatus]:
        """The status of every group; there are none before the logs are open."""
        return [group.status() for group in self.groups]

    def group_reports(self) -> list[GroupReport]:
        """What the other nodes of a cluster must know of every group that is open."""
        return [
            GroupReport(group.applied, group.samples(), flusher.failure)
            for group, flusher in zip(self.groups, self.flushers, strict=False)
        ]

    def cold_statuses(self) -> list[ColdStatus]:
        """The status of every group's part of the store."""
        return [flusher.status() for flusher in self.flushers]

    def cache_statuses(self) -> dict[str, CacheStatus]:
        """The status of the caches of stored data, by kind."""
        return {"row_groups": cache_status(self.cache), "spools": cache_status(self.spools)}

    def upkeep_status(self) -> UpkeepStatus:
        """How much was fetched from the store, merged and collected since the start."""
        return UpkeepStatus(
            fetch_count=self.segments.fetch_count,
            fetched_bytes=self.segments.fetched_bytes,
            merged_count=sum(merger.merged_count for merger in self.mergers),
            merged_bytes=sum(merger.merged_bytes for merger in self.mergers),
            collected_count=self.collector.collected_count,
            collected_bytes=self.collector.collected_bytes,
        )

    async def current(self) -> None:
        """Wait until every group has applied everything acknowledged before now."""
        if self.disagreement is not None:
            raise NotCurrent(self.disagreement)
        await asyncio.gather(*(group.current() for group in self.groups if not group.is_current))

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""
        found = [group.state.reads.list_buckets(after, count) for group in self.groups]
        return list(islice(merge(*found, key=attrgetter("name")), count))

    async def hot_totals(self) -> HotTotals:
        """All bytes in memory, and how many streams are parked."""
        found = [await hot_totals(group.state) for group in self.groups]
        return HotTotals(sum(one.hot_bytes for one in found), sum(one.parked_streams for one in found))

    async def report_hot_bytes(self) -> HotBytesReport:
        """Which streams the bytes in memory belong to. Concurrent callers share one report."""
        if self._hot_bytes_task is None or self._hot_bytes_task.done():
            self._hot_bytes_task = asyncio.create_task(self._report_hot_bytes())
        return await asyncio.shield(self._hot_bytes_task)

    async def _report_hot_bytes(self) -> HotBytesReport:
        return merge_reports([await report_hot_bytes(group.state) for group in self.groups])

    async def _open_log(self, number: int) -> Log:
        match self._log:
            case LogKind.ETCD:
                return await self._open_shared_log(number)
            case LogKind.MEMORY:
                return MemoryLog(generation=self.generation)
            case LogKind.FILE:
                folder: DataFolder = self._folder  # type: ignore[assignment]  # `__init__` has checked it
                return await FileLog.open(
                    folder.log_path(number),
                    generation=self.generation,
                    segment_bytes=self._log_segment_bytes,
                    applied=folder.applied(number),
                )

    async def _open_shared_log(self, number: int) -> Log:
        """The log of a cluster, which must not end before the last entry that this node has seen in it."""
        if self._open_shared is None or self._folder is None:
            raise ValueError("the log of a cluster needs a cluster")
        log = self._open_shared(number)
        tail = await self._with_retries(log.tail)
        if tail < self._folder.applied(number):
            problem = f"it ends at position {tail}, and this node has seen {self._folder.applied(number)}"
            hint = "The cluster has lost writes: see docs/troubleshooting.md"
            raise LogDamaged("the log of the cluster", f"group {number}", problem, hint)
        return log

    def _clear_scratch(self) -> None:
        """Remove the files that a killed process left behind."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True, exist_ok=True)

    def forget_blob(self, key: str) -> None:
        """Remove a blob that was stored for nothing, since no command names it."""
        self._tasks.spawn(_tidy(self.blobs.remove(key)))

    async def _watch_recovery(self) -> None:
        """Serve once all logs are replayed; from then on, Python collects garbage only among new objects."""
        gc.disable()
        while not all(group.recovered for group in self.groups):
            await asyncio.sleep(RECOVERY_CHECK_SECONDS)
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX, 1, NO_FULL_COLLECTION)
        gc.enable()
        self.recovered = True
        self._recovered_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            gc.collect(1)  # few objects, but those of a closed connection may have large buffers
            for group in self.groups:
                group.evictor.tick()
                group.warn_if_clock_is_behind()
            await self._note_applied()

    async def _protect_log(self) -> None:
        """Say now and then how far this node has come, so that the log is not trimmed before it is read."""
        while True:
            await asyncio.sleep(PROTECT_SECONDS)
            for group in self.groups:
                try:
                    await group.log.protect(group.applied)
                except LogUnavailable as error:
                    logger.debug("the log does not know how far this node has come: %s", error)

    async def _check_agreement(self) -> None:
        """Compare the state of every group with that of the other nodes now and then."""
        while True:
            await asyncio.sleep(AGREEMENT_SECONDS)
            for group in self.groups:
                if group.disagreement is None:
                    found = find_disagreement(group.samples(), self._peers.samples(group.number))
                    if found is not None:
                        self._role.give_up()
                        group.contradict(found.explain(group.number))
                        self._on_restart()

    async def _note_applied(self) -> None:
        """Note how far the logs are applied, so that the next start notices if one has lost its end."""
        if self._folder is not None and len(self.groups) == self.group_count:
            await asyncio.to_thread(self._folder.note_applied, [group.applied for group in self.groups])


async def _tidy(removing: Awaitable[None]) -> None:
    """Remove objects that nothing needs. If that fails, a later round removes them."""
    try:
        await removing
    except StoreFailed as error:
        logger.warning("an object that nothing needs could not be removed: %s", error)
