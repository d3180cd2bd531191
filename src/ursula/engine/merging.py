"""The merger: many small neighbours become one segment, and what nobody needs any more is left out.

One merge at a time, with pauses: reading past the cache that serves readers, sorting and compressing in
threads. The output is stored, then `Merge` goes through the log. The inputs stay where they are for those
who still read them; the collector removes them later. A segment that cannot be read is never merged away.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..cold import manifest as manifests
from ..cold.reader import Segments
from ..cold.schema import SEGMENT_SCHEMA
from ..cold.segment import EncodedSegment, encode_segment
from ..cold.store import ObjectDamaged, ObjectMissing, Store, StoreFailed
from ..cold.ulid import milliseconds_of
from ..model.commands import Merge, StoredSegment
from ..model.outcomes import Done, Ignored
from .cold_reads import segment_ref
from .group import Group
from .needed import EVERYTHING, Needed, Owner
from .neighbours import FULL_BYTES, next_run

OWNER_COLUMNS = ["bucket", "stream", "incarnation"]
RETRY_SECONDS = 10.0

Stretch = tuple[str, str, str, int, int]
"""Bucket, stream, incarnation, and the offsets from where to where it has messages."""

logger = logging.getLogger(__name__)


class MergeFailed(Exception):
    """The log did not take a merge; the text says why."""


class MergeSettings(NamedTuple):
    """How the merger goes about it; `look_seconds` is how often it looks for something to do."""

    keep_trimmed: bool
    look_seconds: float = 0.5


class Merger:
    """Keeps the segments of one group few, and without what is not needed. `segments` must not cache."""

    def __init__(self, group: Group, store: Store, segments: Segments, settings: MergeSettings) -> None:
        self._group = group
        self._store = store
        self._segments = segments
        self._settings = settings
        self._needed = Needed(group.state, settings.keep_trimmed)
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
            rows = await self._rows(inputs)
        except (ObjectDamaged, ObjectMissing) as error:
            logger.error("%s: it is left as it is, and its neighbours are merged without it", error)
            self._unreadable[error.key] = None
            return True
        if len(inputs) == 1 and rows.num_rows == inputs[0].rows:
            return True  # what is not needed was left out already
        output = None
        if rows.num_rows:
            output = await self._put(rows, inputs[0].first, inputs[-1].last)
        del rows
        made_at = _now() if output is None else _made_at(output.key)
        outcome = await self._group.ask(Merge(tuple(segment.key for segment in inputs), output, made_at))
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

    async def _rows(self, inputs: Sequence[StoredSegment]) -> pa.Table:
        """What is needed of some segments, a row group at a time."""
        tables, gaps = [SEGMENT_SCHEMA.empty_table()], _Gaps()
        for segment in inputs:
            ref = segment_ref(segment)
            footer = await self._segments.footer(ref)
            for span in footer.spans:
                table = await self._segments.row_group(ref, span)
                owners = await asyncio.to_thread(_owners, table)
                floors = await self._needed.floors(owners)
                if any(floors):
                    incarnations = [incarnation for _, _, incarnation in owners]
                    table = await asyncio.to_thread(_without, table, incarnations, floors)
                for owner, offset in gaps.find(await asyncio.to_thread(_stretches, table)):
                    if offset > self._needed.earliest(*owner):
                        problem = f"messages of {owner[1]} before {offset} are missing"
                        raise ObjectDamaged(segment.key, problem)
                tables.append(table.cast(SEGMENT_SCHEMA))
        rows = pa.concat_tables(tables)
        if gaps.floors:
            floors = list(gaps.floors.values())
            rows = await asyncio.to_thread(_without, rows, list(gaps.floors), floors)
        return rows

    async def _put(self, rows: pa.Table, first: int, last: int) -> StoredSegment:
        number = self._group.number
        encoded: EncodedSegment = await asyncio.to_thread(encode_segment, rows, number, first, last)
        key = manifests.segment_key(number, first, last)
        await self._store.put(key, memoryview(encoded.data))
        return StoredSegment(
            first,
            last,
            key,
            encoded.row_count,
            encoded.data.size,
            encoded.payload_bytes,
            encoded.footer_bytes,
            encoded.footer_crc,
            encoded.digest,
        )


class _Gaps:
    """Streams of which some messages were left out and older ones not: those are not needed either.

    It happens when a segment in the middle was cleaned and the others were not, or when a stream is trimmed
    again, as it then is not known any more where it began before. A segment must have no such gaps. One in
    what may be read is another thing: that is damage.
    """

    def __init__(self) -> None:
        self.floors: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def find(self, stretches: list[Stretch]) -> Iterator[tuple[Owner, int]]:
        """Take the next messages of some streams; tell where there are gaps before them."""
        for bucket, stream, incarnation, start, end in stretches:
            if self._ends.get(incarnation, start) != start:
                self.floors[incarnation] = start
                yield (bucket, stream, incarnation), start
            self._ends[incarnation] = end


def _owners(table: pa.Table) -> list[Owner]:
    """The streams that have rows in a row group."""
    distinct = table.select(OWNER_COLUMNS).group_by(OWNER_COLUMNS).aggregate([])
    columns = (distinct[name].to_pylist() for name in OWNER_COLUMNS)
    return list(zip(*columns, strict=True))


def _stretches(table: pa.Table) -> list[Stretch]:
    """For each stream that has messages here, where they begin and end."""
    messages = table.filter(pc.equal(table["kind"], "append"))
    bounds = messages.group_by(OWNER_COLUMNS).aggregate([("offset", "min"), ("next_offset", "max")])
    columns = (bounds[name].to_pylist() for name in (*OWNER_COLUMNS, "offset_min", "next_offset_max"))
    return list(zip(*columns, strict=True))


def _without(table: pa.Table, incarnations: list[str], floors: list[int]) -> pa.Table:
    """The rows without messages that end before the floor of their stream, or without all that it has."""
    numbers = pc.index_in(table["incarnation"], value_set=pa.array(incarnations, pa.string()))
    floor = pc.fill_null(pc.take(pa.array(floors, pa.int64()), numbers), 0)
    is_before = pc.and_(pc.equal(table["kind"], "append"), pc.less_equal(table["next_offset"], floor))
    return table.filter(pc.invert(pc.or_(is_before, pc.equal(floor, EVERYTHING))))


def _made_at(key: str) -> int:
    """When an object got its name, in microseconds."""
    return milliseconds_of(manifests.ulid_of(key) or "0") * 1000


def _now() -> int:
    return time.time_ns() // 1000
