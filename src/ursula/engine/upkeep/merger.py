"""The merger: many small neighbours become one segment, and what nobody needs any more is left out.

One merge at a time, with pauses: reading past the cache that serves readers, sorting and compressing in
threads. The output is stored, then `Merge` goes through the log. The inputs stay where they are for those
who still read them; the collector removes them later. A segment that cannot be read is never merged away.
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
from ..flush.segment_upload import PacedExecutor, SegmentRange, upload_streamed
from ..group.group import Group
from .liveness import LiveRows
from .merge_policy import FULL_BYTES, next_run
from .merge_rows import MergeRows

RETRY_SECONDS = 10.0

logger = logging.getLogger(__name__)


class MergeFailed(Exception):
    """The log did not take a merge; the text says why."""


class MergeSettings(NamedTuple):
    """How the merger goes about it; `look_seconds` is how often it looks for something to do."""

    keep_trimmed: bool
    look_seconds: float = 0.5


class Merger:
    """Keeps the segments of one group few, and without what is not needed. `segments` must not cache."""

    def __init__(
        self,
        group: Group,
        store: Store,
        unfinished: Unfinished,
        segments: Segments,
        settings: MergeSettings,
    ) -> None:
        self._group = group
        self._store = store
        self._unfinished = unfinished
        self._segments = segments
        self._settings = settings
        self._needed = LiveRows(group.state, settings.keep_trimmed)
        self._unreadable: dict[str, None] = {}
        self._looked_at = group.state.stored.horizon
        self._mostly_dead: list[str] = []
        self._settled = (0, 0, 0)  # the measures of the table when there was nothing to merge
        self.problem: str | None = None
        self.merged_count = 0
        self.merged_bytes = 0

    async def run(self) -> None:
        """Merge whatever should be, until cancelled."""
        pause = self._settings.look_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._settings.look_seconds
            if not self._group.recovered:
                continue
            began_at = time.monotonic()
            try:
                if await self.step():
                    pause = min(pause, time.monotonic() - began_at)  # half of the time is for others
            except (StoreFailed, MergeFailed) as error:
                pause = max(pause, RETRY_SECONDS)
                if self.problem != str(error):
                    logger.info("segments are not merged: %s", error)  # flushes fail too, and are louder
                self.problem = str(error)
            else:
                self.problem = None

    async def step(self) -> bool:
        """Merge some neighbours, or clean one segment; whether there was something to do."""
        table = self._group.state.segments
        if self._settled != (measure := (len(table), table.size, table.payload_bytes)):
            inputs = next_run(list(table), self._unreadable)
            if inputs:
                return await self._merge(inputs)
            self._settled = measure
        found = await self._next_dead()
        return found is not None and await self._merge([found])

    async def _next_dead(self) -> StoredSegment | None:
        """A segment most of which nobody needs; all are looked at once after every collection."""
        state, settings = self._group.state, self._settings
        horizon = state.stored.horizon
        if not self._mostly_dead and self._looked_at < horizon and not settings.keep_trimmed:
            self._looked_at = horizon
            self._mostly_dead = await self._find_dead(list(state.segments))
        while self._mostly_dead:
            found = state.segments.get(self._mostly_dead.pop())
            if found is not None:
                return found
        return None

    async def _find_dead(self, segments: list[StoredSegment]) -> list[str]:
        needed = await self._needed.bytes_by_segment()
        found = []
        for segment in segments:
            kept = needed.get(segment.key, 0)
            if kept * 2 <= segment.payload_bytes > 0 and kept <= FULL_BYTES:
                found.append(segment.key)
        return [key for key in found if key not in self._unreadable]

    async def _merge(self, inputs: Sequence[StoredSegment]) -> bool:
        try:
            rows = MergeRows(inputs, self._segments, self._needed)
            await rows.look()
            if len(inputs) == 1 and rows.row_count == inputs[0].rows and not rows.has_gaps:
                return True  # what is not needed was left out already
            output = await self._put(rows, inputs[0].first, inputs[-1].last)
        except (ObjectDamaged, ObjectMissing) as error:
            logger.error("%s: it is left as it is, and its neighbours are merged without it", error)
            self._unreadable[error.key] = None
            return True
        at = _now() if output is None else made_at(output.key) or 0
        outcome = await self._group.ask(Merge(tuple(segment.key for segment in inputs), output, at))
        if isinstance(outcome, Done):
            self.merged_count += len(inputs)
            self.merged_bytes += sum(segment.size for segment in inputs)
            self._group.flush_wanted = True  # so that the newest manifest does not name the inputs
            return True
        if not isinstance(outcome, Ignored):
            raise MergeFailed(f"the log did not take a merge: {outcome}")
        if output is not None:
            await self._store.delete([output.key])
        return False

    async def _put(self, rows: MergeRows, first: int, last: int) -> StoredSegment | None:
        if not rows.row_count:
            return None
        place = SegmentRange(self._group.number, first, last)
        return await upload_streamed(self._store, self._unfinished, place, rows.ranges(), PacedExecutor())


def _now() -> int:
    return time.time_ns() // 1000
