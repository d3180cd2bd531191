"""The flush: a cut through a group, everything up to it into the store, and then out of memory and log.

In this order, so that a crash between any two steps leaves only objects that nothing names: the cut, through
the log; the segment and the state rows, as of the cut; `Flushed`, through the log; the manifest; the live
list; and the log is trimmed to the manifest before. Two flushers at once cannot harm each other.
"""

import asyncio
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from ...cold.objects import keys
from ...cold.objects.store import Store, StoreFailed, StoreUnavailable
from ...cold.objects.temp_files import Unfinished
from ...cold.state import manifest as manifests
from ...cold.state.state_rows import BATCH_ROWS, EncodedState, batch_of, encode_state
from ...histogram import Histogram
from ...malloc import trim_malloc
from ...model.commands import FlushBegin, Flushed, StoredSegment, StoredState
from ...model.journal import Journal
from ...model.limits import BODY_BYTES_HELD_MAX
from ...model.outcomes import CutMade, Done
from ...model.store_view import checkpoint
from ...model.store_view.dirty_rows import GROUP_KEY, RowKind, RowSnapshot
from ..failures import Superseded
from ..group.group import Group
from ..pacing import TimeSlice
from ..segment_info import live_segment, segment_facts, state_facts
from .pace import FlushPace
from .ranges import is_large
from .rows import Fetch, rows_by_range, rows_of
from .segment_upload import PacedExecutor, SegmentRange, upload_streamed, upload_whole

LOOK_SECONDS = 0.05
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
LIVE_LIST_SECONDS = 10.0
CHANGES_MAX = 64
CAPTURE_STEP = 64
FLUSH_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

logger = logging.getLogger(__name__)


class FlushSettings(NamedTuple):
    """When to flush, and for whom."""

    cluster: str
    generation: int
    flush_size: int
    flush_interval: float


class FlushFailed(Exception):
    """A flush that did not come to its end; the text says why."""


class _Cut(NamedTuple):
    """What is taken at the moment of a cut; the rest is captured bit by bit."""

    position: int
    start: int
    at: int
    chain: tuple[StoredState, ...]
    group_row: bytes
    parts: list[tuple[str, Journal]]
    capture: RowSnapshot


class Flusher:
    """Moves what is old out of one group."""

    def __init__(
        self, group: Group, store: Store, unfinished: Unfinished, fetch: Fetch, settings: FlushSettings
    ) -> None:
        self._group = group
        self._store = store
        self._unfinished = unfinished
        self._fetch = fetch
        self._settings = settings
        self._pace = FlushPace(group.state.gauge, settings.flush_size, group.hot_bytes_max)
        self._hand = PacedExecutor(ThreadPoolExecutor(1, "ursula-flush"), self._pace)
        self._identity = secrets.randbits(63)
        self._wanted: list[asyncio.Future[int]] = []
        self._base_wanted = False
        self._since: float | None = None
        self._live_at = 0.0
        self._live_late = False
        self._lock = asyncio.Lock()
        self.manifest: str | None = None
        self.manifest_position = 0
        self.manifest_at: int | None = None
        self.previous_position = 0
        self.problem: str | None = None
        self.count = 0
        self.failed_count = 0
        self.stored_bytes = 0
        self.flush_seconds = Histogram(FLUSH_SECONDS)

    async def run(self) -> None:
        """Flush whenever it is time, until cancelled."""
        failures = 0
        pause = min(LOOK_SECONDS, self._settings.flush_interval / 2)
        while True:
            await asyncio.sleep(
                pause if not failures else RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]
            )
            if not self._group.recovered:
                continue
            try:
                if failures:
                    await self._store.list("generations/")  # is it back?
                if self._is_due():
                    await self.flush()
                elif self._live_late:
                    await self._write_live()
            except Superseded as error:
                self._refuse_waiting(error)
                raise
            except (StoreFailed, FlushFailed) as error:
                failures += 1
                self._note_failure(error)
            else:
                if failures and self.problem is not None:
                    logger.info("the store takes objects again")
                failures, self.problem = 0, None

    def _note_failure(self, error: Exception) -> None:
        self.failed_count += 1
        if self.problem != str(error):
            logger.error("what is in memory cannot be flushed: %s", error)
        self.problem = str(error)
        self._refuse_waiting(StoreUnavailable(str(error)))

    def _refuse_waiting(self, error: Exception) -> None:
        """Tell those who asked for a flush why there is none."""
        waiting, self._wanted = self._wanted, []
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    async def request(self) -> int:
        """Flush now; returns the position up to which everything is stored, when its manifest is written."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        self._pace.somebody_waits = True
        return await future

    def request_base(self) -> None:
        """Write all rows of the state with the next flush, and flush soon."""
        self._base_wanted = True

    async def purge(self) -> int:
        """Trim the log to the last manifest; returns where it begins now."""
        if self.manifest_position:
            await self._group.log.trim(self.manifest_position)
        return self._group.log.measures.first

    @property
    def waiting_since(self) -> float | None:
        """When something that is not stored yet was first seen, on the monotonic clock."""
        return self._since

    def _is_due(self) -> bool:
        state = self._group.state
        if self._wanted or self._base_wanted or self._group.flush_wanted:
            return True
        if not self._has_news():
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        named_bytes = len(state.stored.bodies) * BODY_BYTES_HELD_MAX  # or more: a flush must read them all
        return (
            state.gauge.count + named_bytes >= self._settings.flush_size
            or now - self._since >= self._settings.flush_interval
        )

    def _has_news(self) -> bool:
        """Whether something happened that is not only about the store itself."""
        state = self._group.state
        if state.parts or state.sealed_parts:
            return True
        if state.stored.flushed > self.manifest_position:
            return True  # the manifest of the last flush was not written
        kinds = (RowKind.STREAM, RowKind.BUCKET, RowKind.INGEST)
        return any(key[0] in kinds for key in state.dirty_rows.open) or bool(state.dirty_rows.sealed)

    async def flush(self) -> int:
        """One flush, from the cut to the trimmed log; returns its position."""
        async with self._lock:
            began_at = time.monotonic()
            waiting, self._wanted = self._wanted, []
            is_needed = self._base_wanted or self._group.flush_wanted or self._has_news()
            self._group.flush_wanted = False
            self._pace.somebody_waits = bool(waiting)
            self._group.evictor.allow_resident(not waiting)  # who asks for a flush wants it out of memory
            try:
                position = await self._flush() if is_needed else self._group.state.stored.flushed
                if waiting:
                    await self._write_live(at_once=True)  # who asked will want to read it
            except BaseException:
                self._wanted = waiting + self._wanted
                raise
            self._since = None
            self.count += 1
            self.flush_seconds.add(time.monotonic() - began_at)
            for future in waiting:
                if not future.done():
                    future.set_result(position)
            await self._group.evictor.wait()
            await self._hand.do(trim_malloc)
            return position

    async def _flush(self) -> int:
        await check_generation(self._store, self._settings.generation)
        is_base = self._base_wanted or self._base_is_due()
        cut = await self._cut(is_base)
        try:
            batches = await self._capture(cut)
        finally:
            self._group.state.dirty_rows.end_capture()
        segment = await self._store_segment(cut)
        turn = TimeSlice(self._pace)
        state = await self._store_state(cut, is_base, batches)
        await turn.end()
        at = min(keys.made_at(stored.key) or 0 for stored in (segment, state) if stored is not None)
        command = Flushed(cut.start, cut.position, segment, state, at)
        outcome = await self._group.ask(command)
        if not isinstance(outcome, Done):
            raise FlushFailed(f"the flush up to position {cut.position} came to nothing: {outcome}")
        if is_base:
            self._base_wanted = False
        await turn.end()
        await self._write_manifest(cut, segment, (state,) if is_base else (*cut.chain, state))
        await self._write_live()
        if self.previous_position:
            await self._group.log.trim(self.previous_position)
        return cut.position

    def _base_is_due(self) -> bool:
        """Whether the changes are as large as the base: then bases cost no more to write than changes."""
        chain = self._group.state.stored.chain
        if not chain:
            return True
        changed = sum(state.size for state in chain[1:])
        return len(chain) > CHANGES_MAX or changed > max(chain[0].size, 64 * 1024)

    async def _cut(self, is_base: bool) -> _Cut:
        cuts: list[_Cut] = []
        self._group.on_cut[self._identity] = lambda: cuts.append(self._take(is_base))
        try:
            outcome = await self._group.ask(FlushBegin(self._identity))
        finally:
            del self._group.on_cut[self._identity]
        if not isinstance(outcome, CutMade) or not cuts:
            raise FlushFailed(f"the log did not take the beginning of a flush: {outcome}")
        return cuts[0]

    def _take(self, is_base: bool) -> _Cut:
        state = self._group.state
        everything = checkpoint.all_keys(state) if is_base else None
        return _Cut(
            state.cut,
            state.stored.flushed,
            state.at,
            state.stored.chain,
            checkpoint.group_row(state),
            [part for _, parts in state.sealed_parts for part in parts],
            state.dirty_rows.begin_capture(partial(checkpoint.row_of, state), everything),
        )

    async def _capture(self, cut: _Cut) -> list[pa.RecordBatch]:
        capture, turn = cut.capture, TimeSlice()
        batches = [batch_of([(GROUP_KEY, cut.group_row)])]
        while not capture.is_done:
            capture.step(CAPTURE_STEP)
            if len(capture.rows) >= BATCH_ROWS // 4 or capture.is_done:
                rows, capture.rows = capture.rows, []
                batches.append(batch_of(rows))
            await turn.end()
        return batches

    async def _store_segment(self, cut: _Cut) -> StoredSegment | None:
        if not cut.parts:
            return None
        place = SegmentRange(self._group.number, cut.start, cut.position)
        turn = TimeSlice(self._pace)
        if is_large(cut.parts):
            rows = rows_by_range(cut.parts, place.group, self._fetch, turn)
            stored = await upload_streamed(self._store, self._unfinished, place, rows, self._hand)
        else:
            all_rows = rows_of(cut.parts, place.group, self._fetch, turn)
            stored = await upload_whole(self._store, place, await all_rows, self._hand)
        if stored is not None:
            self.stored_bytes += stored.size
        return stored

    async def _store_state(self, cut: _Cut, is_base: bool, batches: list[pa.RecordBatch]) -> StoredState:
        encoded: EncodedState = await self._hand.do(encode_state, batches)
        key = keys.state_key(self._group.number, cut.position)
        await self._store.put(key, memoryview(encoded.data))
        self.stored_bytes += encoded.data.size
        return StoredState(key, is_base, encoded.rows, encoded.data.size, encoded.digest)

    async def _write_manifest(
        self, cut: _Cut, segment: StoredSegment | None, chain: tuple[StoredState, ...]
    ) -> None:
        settings, number = self._settings, self._group.number
        document = manifests.Manifest(
            manifests.FORMAT,
            settings.cluster,
            settings.generation,
            number,
            cut.start,
            cut.position,
            cut.at,
            None if segment is None else segment_facts(segment),
            [state_facts(state) for state in chain],
            self.manifest,
        )
        key = keys.manifest_key(number, cut.position)
        await self._store.put(key, manifests.encode(document))
        self.previous_position = self.manifest_position
        self.manifest, self.manifest_position, self.manifest_at = key, cut.position, cut.at

    async def _write_live(self, at_once: bool = False) -> None:
        """Tell readers outside which segments are live; soon after another time, a little later."""
        if not at_once and time.monotonic() - self._live_at < LIVE_LIST_SECONDS:
            self._live_late = True
            return
        self._live_at, self._live_late = time.monotonic(), False
        await self.write_live_now()

    async def write_live_now(self) -> None:
        """Tell readers outside which segments are live."""
        state, settings = self._group.state, self._settings
        document = manifests.LiveList(
            settings.cluster,
            settings.generation,
            self._group.number,
            state.stored.flushed,
            [live_segment(segment) for segment in state.segments],
        )
        await self._store.put(keys.live_key(self._group.number), manifests.encode(document))


async def check_generation(store: Store, own: int) -> manifests.Generation:
    """The generation that the store is in; Superseded if it is a later one than that of this node."""
    found = await manifests.read_generations(store)
    newest = manifests.newest_generation(found)
    if newest > own:
        raise Superseded(
            f"the store is in generation {newest}, and this node in {own}: it was restored elsewhere. "
            "Stop this node; its data folder holds what came after the restore began"
        )
    if newest < own:
        raise manifests.not_what_it_was(store, keys.generation_key(own))
    return found[-1]
