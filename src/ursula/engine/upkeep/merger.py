"""The merger: merges many small neighbouring segments into one, and leaves out rows that are no longer live.

It does one merge at a time, with pauses. It bypasses the cache that serves readers, and sorts and compresses
in threads. The output is stored, then `Merge` goes through the log. The inputs stay in the store for readers
that still use them; garbage collection removes them later. A segment that cannot be read is never merged.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from ...cold.objects.keys import made_at
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store, StoreFailed
from ...cold.objects.temp_files import Unfinished
from ...cold.segment.reader import Segments
from ...model.commands import Merge, StoredSegment
from ...model.outcomes import Done, Ignored
from ..clock import Clock, system_clock
from ..flush.segment_upload import PacedExecutor, SegmentRange, upload_streamed
from ..group.group import Group
from ..keeper import KeeperRole
from .liveness import LiveRows
from .merge_policy import FULL_BYTES, next_run
from .merge_rows import MergeRows

RETRY_SECONDS = 10.0

logger = logging.getLogger(__name__)


class MergeFailed(Exception):
    """The log did not accept a merge; the text says why."""


class MergeSettings(NamedTuple):
    """Whether rows that are not live are kept, and how often the merger looks for work."""

    keep_trimmed: bool
    check_seconds: float = 0.5


class Merger:
    """Keeps the segments of one group few, and mostly free of rows that are not live."""

    def __init__(
        self,
        group: Group,
        store: Store,
        unfinished: Unfinished,
        segments: Segments,
        settings: MergeSettings,
        role: KeeperRole,
        clock: Clock = system_clock,
    ) -> None:
        """`segments` must not cache."""
        self._group = group
        self._store = store
        self._unfinished = unfinished
        self._segments = segments
        self._settings = settings
        self._role = role
        self._clock = clock
        self._live_rows = LiveRows(group.state, settings.keep_trimmed)
        self._unreadable: dict[str, None] = {}
        self._searched_horizon = group.state.stored.horizon
        self._has_searched = not len(group.state.segments)  # anything may have been dropped before this start
        self._mostly_dead: list[str] = []
        self._measures_when_done = (0, 0, 0)  # of the segment table, when there was last nothing to merge
        self.problem: str | None = None
        self.merged_count = 0
        self.merged_bytes = 0

    async def run(self) -> None:
        """Merge whenever there is something to merge, until cancelled."""
        pause = self._settings.check_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._settings.check_seconds
            if not self._group.recovered or not self._role.is_held:
                continue
            began_at = time.monotonic()
            try:
                if await self.step():
                    pause = min(pause, time.monotonic() - began_at)  # leaves half of the time to other work
            except (StoreFailed, MergeFailed) as error:
                pause = max(pause, RETRY_SECONDS)
                if self.problem != str(error):
                    logger.info("segments are not merged: %s", error)  # flushes fail too, and log an error
                self.problem = str(error)
            else:
                self.problem = None

    async def step(self) -> bool:
        """Merge some neighbours, or rewrite one segment; returns whether there was something to do."""
        table = self._group.state.segments
        if self._measures_when_done != (measures := (len(table), table.size, table.payload_bytes)):
            inputs = next_run(list(table), self._unreadable)
            if inputs:
                return await self._merge(inputs)
            self._measures_when_done = measures
        found = await self._next_dead()
        return found is not None and await self._merge([found])

    async def _next_dead(self) -> StoredSegment | None:
        """A segment whose rows are mostly not live.

        The segments are searched after a garbage collection, but only if a stream ended or was trimmed since
        the horizon of the last search: a search walks over every stream, and nothing else makes bytes dead.
        """
        state, settings = self._group.state, self._settings
        horizon = state.stored.horizon
        if not self._mostly_dead and self._searched_horizon < horizon and not settings.keep_trimmed:
            may_have_died = not self._has_searched or state.dropped_at >= self._searched_horizon
            self._searched_horizon, self._has_searched = horizon, True
            if may_have_died:
                self._mostly_dead = await self._find_dead(list(state.segments))
        while self._mostly_dead:
            found = state.segments.get(self._mostly_dead.pop())
            if found is not None:
                return found
        return None

    async def _find_dead(self, segments: list[StoredSegment]) -> list[str]:
        live_bytes = await self._live_rows.bytes_by_segment()
        found = []
        for segment in segments:
            kept = live_bytes.get(segment.key, 0)
            if kept * 2 <= segment.payload_bytes > 0 and kept <= FULL_BYTES:
                found.append(segment.key)
        return [key for key in found if key not in self._unreadable]

    async def _merge(self, inputs: Sequence[StoredSegment]) -> bool:
        try:
            rows = MergeRows(inputs, self._segments, self._live_rows)
            await rows.survey()
            if len(inputs) == 1 and rows.row_count == inputs[0].rows and not rows.has_gaps:
                return True  # all rows are live: dead ones have already been left out
            output = await self._put(rows, inputs[0].first, inputs[-1].last)
        except (ObjectDamaged, ObjectMissing) as error:
            logger.error("%s: it is left as it is, and its neighbours are merged without it", error)
            self._unreadable[error.key] = None
            return True
        at = self._clock() if output is None else made_at(output.key) or 0
        outcome = await self._group.propose_and_wait(
            Merge(tuple(segment.key for segment in inputs), output, at)
        )
        if isinstance(outcome, Done):
            self.merged_count += len(inputs)
            self.merged_bytes += sum(segment.size for segment in inputs)
            return True
        if not isinstance(outcome, Ignored):
            raise MergeFailed(f"the log did not accept a merge: {outcome}")
        if output is not None:
            await self._store.delete([output.key])
        return False

    async def _put(self, rows: MergeRows, first: int, last: int) -> StoredSegment | None:
        if not rows.row_count:
            return None
        positions = SegmentRange(self._group.number, first, last)
        return await upload_streamed(self._store, self._unfinished, positions, rows.ranges(), PacedExecutor())
