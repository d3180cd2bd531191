"""The flush: writes everything up to a cut of a group to the store, so that memory and the log can drop it.

The order of the steps ensures that a crash between any two of them leaves only objects that nothing names:
the cut, through the log; the segment and the state rows, as of the cut; `Flushed`, through the log; the
manifest; the live list; and the log is trimmed to the previous manifest.

Only the keeper flushes (see `engine/keeper.py`). Every node may request a flush, through the log, so that the
node that is the keeper by then knows. A new keeper reads from the store what only the last one knew. Two
flushers at once cannot harm each other: of two flushes that begin at the same position the first `Flushed`
counts, and the other flush is given up.
"""

import asyncio
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, NoReturn

import pyarrow as pa

from ...cold.objects import keys
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store, StoreFailed, StoreUnavailable
from ...cold.objects.temp_files import Unfinished
from ...cold.state import manifest as manifests
from ...cold.state.state_rows import BATCH_ROWS, EncodedState, batch_of, encode_state
from ...histogram import Histogram
from ...log.interface import LogUnavailable
from ...malloc import trim_malloc
from ...model.checkpoint import checkpoint
from ...model.commands import FlushBegin, Flushed, RequestFlush, StoredSegment, StoredState
from ...model.journal import Journal
from ...model.limits import BODY_BYTES_HELD_MAX
from ...model.outcomes import CutMade, Done, Ignored, Refused
from ...model.store_view.dirty_rows import GROUP_KEY, RowKind, RowSnapshot
from ..failures import Failure, Superseded, Unavailable
from ..group.group import Group
from ..keeper import KeeperRole
from ..pacing import TimeSlice
from ..peers import FlushFailure, Peers
from ..segment_info import live_segment, segment_facts, state_facts
from ..start.load_state import LoadedState
from ..start.store_identity import check_generation
from ..status.cold_status import ColdStatus
from .pace import FlushPace
from .ranges import is_large
from .rows import Fetch, rows_by_range, rows_of
from .segment_upload import PacedExecutor, SegmentRange, upload_streamed, upload_whole

CHECK_SECONDS = 0.05
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
LIVE_LIST_SECONDS = 10.0
"""How often the live list is written at most. A keeper's lease is shorter."""
CHANGES_MAX = 64
CAPTURE_STEP = 64
FLUSH_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

logger = logging.getLogger(__name__)


class FlushSettings(NamedTuple):
    """The identity of the store, and when to flush."""

    cluster: str
    generation: int
    flush_size: int
    flush_interval: float


class FlushFailed(Exception):
    """A flush could not be completed; the text says why."""


class FlushOvertaken(Exception):
    """Another node has flushed the same data first, so this flush was given up. Nothing is lost."""


class _Cut(NamedTuple):
    """The data captured at the moment of a cut; the state rows are captured step by step after it."""

    position: int
    start: int
    at: int
    chain: tuple[StoredState, ...]
    group_row: bytes
    parts: list[tuple[str, Journal]]
    capture: RowSnapshot


class Flusher:
    """Flushes one group: when a flush is due, or on request."""

    def __init__(
        self,
        group: Group,
        store: Store,
        unfinished: Unfinished,
        fetch: Fetch,
        settings: FlushSettings,
        role: KeeperRole,
        loaded: LoadedState | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`loaded` is the state that the group started from, if the store had one."""
        self._group = group
        self._store = store
        self._unfinished = unfinished
        self._fetch = fetch
        self._settings = settings
        self._role = role
        self._was_keeper = role.is_held
        self._peers = peers or Peers()
        self._failed_request = 0  # the position of the newest request when a flush failed
        self._pace = FlushPace(group.state.gauge, settings.flush_size, group.hot_bytes_max)
        self._executor = PacedExecutor(ThreadPoolExecutor(1, "ursula-flush"), self._pace)
        self.is_requested = False
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []  # with the position that must be flushed
        self._since: float | None = None
        self._live_at = 0.0
        self._live_is_stale = False
        self._live_in_doubt_until = 0.0
        self._lock = asyncio.Lock()
        self.manifest = None if loaded is None else loaded.key
        self.manifest_position = 0 if loaded is None else loaded.manifest.position
        self.manifest_at = None if loaded is None else loaded.manifest.at
        self.previous_position = 0 if loaded is None else loaded.previous_position
        self.problem: str | None = None
        self.count = 0
        self.failed_count = 0
        self.stored_bytes = 0
        self.flush_seconds = Histogram(FLUSH_SECONDS)

    async def run(self) -> None:
        """Flush whenever a flush is due, until cancelled."""
        try:
            await self._run()
        finally:
            self._fail_waiting(StoreUnavailable("the node stops, or starts again"))

    async def _run(self) -> None:
        failures = 0
        pause = min(CHECK_SECONDS, self._settings.flush_interval / 2)
        while True:
            await asyncio.sleep(
                pause if not failures else RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]
            )
            if not self._group.recovered:
                continue
            try:
                if not self._role.is_held:
                    failures, self.problem, self._since, self._was_keeper = 0, None, None, False
                    await self._watch_keeper()
                    continue
                if failures:
                    await self._store.list("generations/")  # is the store back?
                if not self._was_keeper:
                    await self._take_over()
                if self._is_due():
                    await self.flush()
                elif self._live_is_stale:
                    await self._write_live()
            except Superseded as error:
                self._fail_waiting(error)
                raise
            except FlushOvertaken as error:
                logger.info("%s", error)
            except (StoreFailed, FlushFailed) as error:
                failures += 1
                self._note_failure(error)
            else:
                if failures and self.problem is not None:
                    logger.info("the store accepts objects again")
                failures, self.problem = 0, None

    def _note_failure(self, error: Exception) -> None:
        self.failed_count += 1
        if self.problem != str(error):
            logger.error("data in memory cannot be flushed: %s", error)
        self.problem = str(error)
        self._failed_request = self._group.state.stored.flush_requested_at
        self._fail_waiting(StoreUnavailable(str(error)))

    def _fail_waiting(self, error: Exception, upto: int | None = None) -> None:
        """Raise the error in every caller that waits for a flush, or only in those up to a position."""
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if upto is not None and wanted > upto:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_exception(error)

    def _answer_waiting(self, position: int) -> None:
        """Answer the callers that wait for a manifest of this position or an earlier one."""
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > position:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(position)

    @property
    def failure(self) -> FlushFailure | None:
        """Why this node, which is the keeper, could not flush when it last tried."""
        if self.problem is None or not self._role.is_held:
            return None
        return FlushFailure(self._failed_request, self.problem)

    async def _watch_keeper(self) -> None:
        """Answer callers on a node that is not the keeper: the store has the keeper's manifests.

        If a flush fails there, the callers are refused whose requests the keeper knew by then.
        """
        failure = self._peers.flush_failure(self._group.number)
        if failure is not None:
            self._fail_waiting(StoreUnavailable(failure.reason), failure.position)
        flushed = self._group.state.stored.flushed
        if any(wanted <= flushed for wanted, _ in self._waiting):
            found = await manifests.find_manifests(self._store, self._group.number)
            self._answer_waiting(found[0].position if found else 0)

    async def _take_over(self) -> None:
        """Learn from the store what only the last keeper knew."""
        found = await manifests.find_manifests(self._store, self._group.number)
        for place, one in enumerate(found):
            with suppress(ObjectMissing, ObjectDamaged):  # then the one before it counts, as at a start
                newest = await manifests.read_manifest(self._store, one.key)
                self.manifest, self.manifest_position, self.manifest_at = one.key, one.position, newest.at
                self.previous_position = found[place + 1].position if place + 1 < len(found) else 0
                break
        # The last keeper may just be writing an older list: ours is written again when its lease has ended.
        self._live_is_stale, self._live_in_doubt_until = True, time.monotonic() + LIVE_LIST_SECONDS
        self._was_keeper = True
        self._answer_waiting(self.manifest_position)
        logger.info("this node is the keeper of group %d now", self._group.number)

    def request(self) -> None:
        """Request a flush soon if this node is the keeper, even if nothing new was written."""
        self.is_requested = True

    async def request_base(self) -> Refused | Failure | None:
        """Request a flush soon that writes all rows of the state; returns why that was not possible."""
        outcome = await self._group.propose_and_wait(RequestFlush(base=True))
        return outcome if isinstance(outcome, Refused | Failure) else None

    async def flush_and_wait(self) -> int | Failure:
        """Flush everything that was acknowledged until now.

        Returns the position of the manifest once it is written, or the failure if the log did not accept the
        request. Raises StoreFailed if the manifest cannot be written.
        """
        self._group.evictor.allow_resident(False)  # callers of a flush want memory freed
        if self._is_flushed:
            async with self._lock:
                await self._write_live(at_once=True)
            return self._group.state.stored.flushed
        outcome = await self._group.propose_and_wait(RequestFlush())
        if not isinstance(outcome, Done):
            return outcome if isinstance(outcome, Failure) else Unavailable(str(outcome))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((outcome.position, future))
        self._pace.caller_waits = True
        try:
            return await future
        finally:
            if not self._role.is_held:  # the next flush of the keeper would allow it again
                self._group.evictor.allow_resident(True)

    async def purge(self) -> int:
        """Trim the log to the newest manifest; returns where it begins now."""
        if not self._role.is_held:
            found = await manifests.find_manifests(self._store, self._group.number)
            self.manifest_position = found[0].position if found else 0
        if self.manifest_position:
            await self._group.log.trim(self.manifest_position)
        return self._group.log.measures.first

    def status(self) -> ColdStatus:
        """What an operator may see of the group's part of the store."""
        group, state = self._group, self._group.state
        failure = self._peers.flush_failure(group.number)
        return ColdStatus(
            number=group.number,
            manifest_position=self.manifest_position,
            manifest_at=self.manifest_at,
            backlog_seconds=0.0 if self._since is None else time.monotonic() - self._since,
            problem=self.problem if failure is None else failure.reason,
            flush_count=self.count,
            failed_count=self.failed_count,
            flush_seconds=self.flush_seconds,
            written_bytes=self.stored_bytes,
            segment_count=len(state.segments),
            segment_bytes=state.segments.size,
            payload_bytes=state.segments.payload_bytes,
            state_bytes=sum(stored.size for stored in state.stored.chain),
            held_bytes=state.gauge.count,
            recent_bytes=group.evictor.resident_bytes,
            is_full=group.is_full,
            rejected_count=group.rejected_count,
            ended_streams=len(state.deleted.incarnations),
        )

    def _is_due(self) -> bool:
        state = self._group.state
        if self.is_requested or self._is_wanted:
            return True
        if not self._has_news():
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        blob_bytes = len(state.stored.bodies) * BODY_BYTES_HELD_MAX  # at least: a flush must read them all
        return (
            state.gauge.count + blob_bytes >= self._settings.flush_size
            or now - self._since >= self._settings.flush_interval
        )

    @property
    def _is_flushed(self) -> bool:
        """Whether this node knows, without asking others, that a flush would store nothing new."""
        is_quiet = self._role.is_held and self._group.is_current and not self._group.has_unfinished
        return is_quiet and not (self._is_wanted or self._has_news())

    @property
    def knows_manifests(self) -> bool:
        """Whether this node is the keeper and has learned what the last keeper knew."""
        return self._role.is_held and self._was_keeper and self._group.recovered

    @property
    def _is_wanted(self) -> bool:
        """Whether a caller requested a flush, or the newest manifest names inputs of a merge."""
        stored = self._group.state.stored
        wanted_at = max(stored.flush_requested_at, stored.merged_at)
        return bool(stored.base_requested_at) or wanted_at > min(stored.flushed, self.manifest_position)

    def _has_news(self) -> bool:
        """Whether anything has changed other than the rows about the store itself."""
        state = self._group.state
        if state.parts or state.sealed_parts:
            return True
        if state.stored.flushed > self.manifest_position:
            return True  # the manifest of the last flush was not written
        kinds = (RowKind.STREAM, RowKind.BUCKET, RowKind.INGEST)
        return any(key[0] in kinds for key in state.dirty_rows.open) or bool(state.dirty_rows.sealed)

    async def flush(self) -> int:
        """Flush once, from the cut to the trimmed log; returns the position of the cut."""
        async with self._lock:
            began_at = time.monotonic()
            stored = self._group.state.stored
            is_urgent = stored.flush_requested_at > stored.flushed
            was_requested, self.is_requested = self.is_requested, False
            is_needed = was_requested or self._is_wanted or self._has_news()
            self._pace.caller_waits = is_urgent
            self._group.evictor.allow_resident(not is_urgent)
            try:
                position = await self._flush(is_urgent) if is_needed else stored.flushed
            except BaseException:
                self.is_requested = self.is_requested or was_requested
                raise
            self._since = None
            self.count += 1
            self.flush_seconds.add(time.monotonic() - began_at)
            self._answer_waiting(position)
            await self._group.evictor.wait()
            await self._executor.do(trim_malloc)
            return position

    async def _flush(self, is_urgent: bool) -> int:
        await check_generation(self._store, self._settings.generation)
        is_base = bool(self._group.state.stored.base_requested_at) or self._base_is_due()
        with self._group.evictor.journals_in_use():
            try:
                cut = await self._cut(is_base)
                batches = await self._capture(cut)
            finally:
                self._group.state.dirty_rows.end_capture()
            await self._check_overtaken(cut)
            segment = await self._store_segment(cut)
        time_slice = TimeSlice(self._pace)
        await self._check_overtaken(cut, segment)
        state = await self._store_state(cut, is_base, batches)
        await time_slice.end()
        oldest = min(keys.made_at(stored.key) or 0 for stored in (segment, state) if stored is not None)
        command = Flushed(cut.start, cut.position, segment, state, oldest)
        outcome = await self._group.propose_and_wait(command)
        if isinstance(outcome, Ignored):
            await self._give_up(cut, segment, state)
        if not isinstance(outcome, Done):
            raise FlushFailed(f"the flush up to position {cut.position} was not recorded: {outcome}")
        await time_slice.end()
        await self._write_manifest(cut, segment, (state,) if is_base else (*cut.chain, state))
        await self._write_live(at_once=is_urgent)  # the callers will want to read the list
        if self.previous_position:
            try:
                await self._group.log.trim(self.previous_position)
            except LogUnavailable as error:
                logger.info("the log was not trimmed, the next flush will do it: %s", error)
        return cut.position

    async def _check_overtaken(self, cut: _Cut, *objects: StoredSegment | StoredState | None) -> None:
        """Give up the flush if another node's flush has been applied meanwhile."""
        if self._group.state.stored.flushed != cut.start:
            await self._give_up(cut, *objects)

    async def _give_up(self, cut: _Cut, *objects: StoredSegment | StoredState | None) -> NoReturn:
        """Remove the objects of a flush that was certainly not recorded."""
        await self._store.delete([stored.key for stored in objects if stored is not None])
        if self._group.state.stored.flushed == cut.start:
            raise FlushFailed(
                f"the flush up to position {cut.position} took longer than objects without a name are kept "
                "(cold.keep_replaced)"
            )
        raise FlushOvertaken(f"the flush up to position {cut.position} was overtaken by another node's")

    def _base_is_due(self) -> bool:
        """Whether the changes are as large as the base: so writing bases costs no more than changes."""
        chain = self._group.state.stored.chain
        if not chain:
            return True
        changed = sum(state.size for state in chain[1:])
        return len(chain) > CHANGES_MAX or changed > max(chain[0].size, 64 * 1024)

    async def _cut(self, is_base: bool) -> _Cut:
        cuts: list[_Cut] = []
        number = secrets.randbits(63)  # a new one each time: the log may still apply that of a failed attempt
        self._group.on_cut[number] = lambda: cuts.append(self._take(is_base))
        try:
            outcome = await self._group.propose_and_wait(FlushBegin(number))
        finally:
            del self._group.on_cut[number]
        if not isinstance(outcome, CutMade) or not cuts:
            raise FlushFailed(f"the log did not accept the beginning of a flush: {outcome}")
        return cuts[0]

    def _take(self, is_base: bool) -> _Cut:
        state = self._group.state
        everything = checkpoint.all_keys(state) if is_base else None
        return _Cut(
            position=state.cut,
            start=state.stored.flushed,
            at=state.at,
            chain=state.stored.chain,
            group_row=checkpoint.group_row(state),
            parts=[part for _, parts in state.sealed_parts for part in parts],
            capture=state.dirty_rows.begin_capture(partial(checkpoint.row_of, state), everything),
        )

    async def _capture(self, cut: _Cut) -> list[pa.RecordBatch]:
        capture, time_slice = cut.capture, TimeSlice()
        batches = [batch_of([(GROUP_KEY, cut.group_row)])]
        while not capture.is_done:
            capture.step(CAPTURE_STEP)
            if len(capture.rows) >= BATCH_ROWS // 4 or capture.is_done:
                rows, capture.rows = capture.rows, []
                batches.append(batch_of(rows))
            await time_slice.end()
        return batches

    async def _store_segment(self, cut: _Cut) -> StoredSegment | None:
        if not cut.parts:
            return None
        positions = SegmentRange(self._group.number, cut.start, cut.position)
        time_slice = TimeSlice(self._pace)
        if is_large(cut.parts):
            rows = rows_by_range(cut.parts, positions.group, self._fetch, time_slice)
            stored = await upload_streamed(self._store, self._unfinished, positions, rows, self._executor)
        else:
            all_rows = await rows_of(cut.parts, positions.group, self._fetch, time_slice)
            stored = await upload_whole(self._store, positions, all_rows, self._executor)
        if stored is not None:
            self.stored_bytes += stored.size
        return stored

    async def _store_state(self, cut: _Cut, is_base: bool, batches: list[pa.RecordBatch]) -> StoredState:
        encoded: EncodedState = await self._executor.do(encode_state, batches)
        key = keys.state_key(self._group.number, cut.position)
        await self._store.put(key, memoryview(encoded.data))
        self.stored_bytes += encoded.data.size
        return StoredState(key, is_base, encoded.rows, encoded.data.size, encoded.digest)

    async def _write_manifest(
        self, cut: _Cut, segment: StoredSegment | None, chain: tuple[StoredState, ...]
    ) -> None:
        settings, number = self._settings, self._group.number
        document = manifests.Manifest(
            format=manifests.FORMAT,
            cluster=settings.cluster,
            generation=settings.generation,
            group=number,
            start=cut.start,
            position=cut.position,
            at=cut.at,
            segment=None if segment is None else segment_facts(segment),
            state=[state_facts(state) for state in chain],
            previous=self.manifest,
        )
        key = keys.manifest_key(number, cut.position)
        await self._store.put(key, manifests.encode(document))
        self.previous_position = self.manifest_position
        self.manifest, self.manifest_position, self.manifest_at = key, cut.position, cut.at

    async def _write_live(self, at_once: bool = False) -> None:
        """Write the live list, or leave it for later if it was written recently."""
        now = time.monotonic()
        if not at_once and now - self._live_at < LIVE_LIST_SECONDS:
            self._live_is_stale = True
            return
        self._live_at, self._live_is_stale = now, now < self._live_in_doubt_until
        await self.write_live_now()

    async def write_live_now(self) -> None:
        """Write the list of live segments for readers outside the server, unless there is a newer one."""
        state, settings = self._group.state, self._settings
        with suppress(ObjectMissing, ObjectDamaged):
            if (await manifests.read_live(self._store, self._group.number)).position > state.stored.flushed:
                return  # another node was the keeper meanwhile
        document = manifests.LiveList(
            settings.cluster,
            settings.generation,
            self._group.number,
            state.stored.flushed,
            [live_segment(segment) for segment in state.segments],
        )
        if not self._role.is_held:
            return  # this node was frozen while it read the list, and another one is the keeper now
        await self._store.put(keys.live_key(self._group.number), manifests.encode(document))
