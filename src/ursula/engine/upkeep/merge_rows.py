"""The rows of a merge: first a look at what there is, then what is needed of it, a range of keys at a time.

Every input is sorted by key, so a range of keys is a slice of each of its row groups, and no more than the
rows of one range are in hand, however large the inputs are. A row group that lies across several ranges is
read for each of them.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...cold.objects.store import ObjectDamaged
from ...cold.segment.footer import Footer
from ...cold.segment.reader import SegmentRef, Segments
from ...cold.segment.schema import SEGMENT_SCHEMA, Key, key_at
from ...model.commands import StoredSegment
from ..segment_info import segment_ref
from .liveness import ALL_BUT_THE_END, EVERYTHING, LiveRows, Owner
from .merge_policy import ROW_BYTES, weight

RANGE_BYTES = 8 * 1024 * 1024
SAMPLE_BYTES_MIN = 16 * 1024

_OWNER_COLUMNS = ["bucket", "stream", "incarnation"]
_LOOK_COLUMNS = [*_OWNER_COLUMNS, "kind", "offset", "next_offset", "event"]
_ENDS = pa.array(["delete", "expire"])
_FLOORS = pa.schema([("incarnation", pa.string()), ("floor", pa.int64())])


class _Input(NamedTuple):
    """A segment that is read."""

    ref: SegmentRef
    footer: Footer


class _Gap(NamedTuple):
    """A stream of which messages before this offset, where the input goes on, were left out."""

    owner: Owner
    start: int
    input: int


class _Sample(NamedTuple):
    """Some rows that lie side by side in an input: where they begin, and about how much they take."""

    first: Key
    size: int


class MergeRows:
    """What is needed of some neighbouring segments."""

    def __init__(self, inputs: Sequence[StoredSegment], segments: Segments, needed: LiveRows) -> None:
        self._segments = segments
        self._needed = needed
        self._sample_bytes = max(RANGE_BYTES // (2 * len(inputs)), SAMPLE_BYTES_MIN)
        self._stored = inputs
        self._inputs: list[_Input] = []
        self._samples: list[_Sample] = []
        self._floors = [_FLOORS.empty_table()]
        self._stretches: list[pa.Table] = []
        self._is_small = sum(map(weight, inputs)) <= RANGE_BYTES
        self._tables: list[pa.Table] = []  # all rows, if those are few
        self.row_count = 0
        """How many are left; some more may go when all inputs are seen together."""
        self.has_gaps = False

    async def look(self) -> None:
        """See what is needed; ObjectDamaged if messages are missing that may be read."""
        for number, segment in enumerate(self._stored):
            ref = segment_ref(segment)
            footer = await self._segments.footer(ref)
            self._inputs.append(_Input(ref, footer))
            for span in footer.row_groups:
                columns = None if self._is_small else _LOOK_COLUMNS
                await self._look_at(number, await self._segments.row_group(ref, span, columns))
        gaps = await asyncio.to_thread(_gaps, self._stretches)
        self._stretches = []
        for owner, start, number in gaps:
            if start > self._needed.earliest(*owner):
                problem = f"messages of {owner[1]} before {start} are missing"
                raise ObjectDamaged(self._stored[number].key, problem)
        if gaps:
            self.has_gaps = True
            self._floors.append(_floors([gap.owner for gap in gaps], [gap.start for gap in gaps]))

    async def _look_at(self, number: int, table: pa.Table) -> None:
        owners = await asyncio.to_thread(_owners, table)
        floors = await self._needed.floors(owners)
        if any(floors):
            self._floors.append(await asyncio.to_thread(_floors, owners, floors))
            table = await asyncio.to_thread(_without, table, self._floors[-1])
        self.row_count += table.num_rows
        if self._is_small:
            self._tables.append(table)
        else:
            self._samples += await asyncio.to_thread(_samples, table, self._sample_bytes)
        self._stretches.append(await asyncio.to_thread(_stretches, table, number))

    async def ranges(self) -> AsyncIterator[pa.Table]:
        """The rows; those of each table belong behind those of the one before."""
        floors = await asyncio.to_thread(_highest, self._floors)
        if self._is_small:
            rows = pa.concat_tables([table.cast(SEGMENT_SCHEMA) for table in self._tables])
            self._tables = []
            yield await asyncio.to_thread(_without, rows, floors)
            return
        bounds = await asyncio.to_thread(_bounds, self._samples, RANGE_BYTES)
        for first, end in zip([None, *bounds], [*bounds, None], strict=True):
            tables = [SEGMENT_SCHEMA.empty_table()]
            for ref, footer in self._inputs:
                for span in footer.row_groups:
                    if (first is None or span.last >= first) and (end is None or span.first < end):
                        table = await self._segments.row_group(ref, span)
                        tables.append(await asyncio.to_thread(_part, table, first, end, floors))
                        del table
            rows = pa.concat_tables(tables)
            del tables
            yield rows
            del rows


def _owners(table: pa.Table) -> list[Owner]:
    """The streams that have rows in a row group."""
    distinct = table.select(_OWNER_COLUMNS).group_by(_OWNER_COLUMNS).aggregate([])
    columns = (distinct[name].to_pylist() for name in _OWNER_COLUMNS)
    return list(zip(*columns, strict=True))


def _floors(owners: list[Owner], floors: list[int]) -> pa.Table:
    """Streams of which something is not needed, with up to where."""
    found = [(incarnation, floor) for (_, _, incarnation), floor in zip(owners, floors, strict=True) if floor]
    names, numbers = zip(*found, strict=True)
    return pa.table([pa.array(names, pa.string()), pa.array(numbers, pa.int64())], schema=_FLOORS)


def _highest(floors: list[pa.Table]) -> pa.Table:
    """Each stream once: what was not needed at one moment is not at a later one."""
    found = pa.concat_tables(floors).group_by("incarnation").aggregate([("floor", "max")])
    return found.rename_columns({"floor_max": "floor"}).combine_chunks()


def _without(table: pa.Table, floors: pa.Table) -> pa.Table:
    """The rows without messages that end before the floor of their stream; see `LiveRows.floors`."""
    if not floors.num_rows:
        return table
    numbers = pc.index_in(table["incarnation"], value_set=floors["incarnation"])
    floor = pc.fill_null(pc.take(floors["floor"], numbers), 0)
    is_before = pc.and_(pc.equal(table["kind"], "append"), pc.less_equal(table["next_offset"], floor))
    is_end = pc.is_in(table["kind"], value_set=_ENDS)
    is_dead = pc.and_(pc.greater_equal(floor, ALL_BUT_THE_END), pc.invert(is_end))
    is_gone = pc.or_(is_dead, pc.equal(floor, EVERYTHING))
    return table.filter(pc.invert(pc.or_(is_before, is_gone)))


def _stretches(table: pa.Table, number: int) -> pa.Table:
    """For each stream that has messages in a row group, where they begin and end."""
    messages = table.filter(pc.equal(table["kind"], "append"))
    bounds = messages.group_by(_OWNER_COLUMNS).aggregate([("offset", "min"), ("next_offset", "max")])
    bounds = bounds.rename_columns({"offset_min": "start", "next_offset_max": "end"})
    return bounds.append_column("input", pa.repeat(number, bounds.num_rows))


def _gaps(stretches: list[pa.Table]) -> list[_Gap]:
    """The stretches before which some messages of their stream were left out, and older ones were not.

    It happens when a segment in the middle was cleaned and the others were not, or when a stream is trimmed
    again, as it then is not known any more where it began before. A segment must have no such gaps, so the
    older ones go too. One in what may be read is another thing: that is damage.
    """
    if not stretches:
        return []
    table = pa.concat_tables(stretches)
    table = table.append_column("row", pa.arange(0, table.num_rows))
    table = table.take(pc.sort_indices(table, [("incarnation", "ascending"), ("row", "ascending")]))
    later, earlier = table.slice(1), table.slice(0, max(table.num_rows - 1, 0))
    is_same = pc.equal(later["incarnation"], earlier["incarnation"])
    found = later.filter(pc.and_(is_same, pc.not_equal(later["start"], earlier["end"])))
    owners = zip(*(found[name].to_pylist() for name in _OWNER_COLUMNS), strict=True)
    return list(map(_Gap, owners, found["start"].to_pylist(), found["input"].to_pylist()))


def _samples(table: pa.Table, size: int) -> list[_Sample]:
    """Cut a row group, without what is not needed, into parts of about this size."""
    if not table.num_rows:
        return []
    payload = pc.subtract(table["next_offset"], table["offset"])
    event = pc.fill_null(pc.binary_length(table["event"]), 0).cast(pa.int64())
    sums = pc.cumulative_sum(pc.add(pc.add(payload, event), ROW_BYTES)).combine_chunks()
    number = pc.divide(sums, size)
    changes = pc.indices_nonzero(pc.not_equal(number.slice(1), number.slice(0, len(number) - 1)))
    starts = [0, *(change + 1 for change in changes.to_pylist())]
    before = [0, *(sums[start - 1].as_py() for start in starts[1:]), sums[-1].as_py()]
    sizes = (end - begin for begin, end in pairwise(before))
    return [_Sample(key_at(table, start), size) for start, size in zip(starts, sizes, strict=True)]


def _bounds(samples: list[_Sample], size: int) -> list[Key]:
    """The keys at which ranges of about this size end and others begin."""
    bounds: list[Key] = []
    total = 0
    for first, more in sorted(samples):
        if total and total + more > size and (not bounds or first > bounds[-1]):
            bounds.append(first)
            total = 0
        total += more
    return bounds


def _part(table: pa.Table, first: Key | None, end: Key | None, floors: pa.Table) -> pa.Table:
    """What is needed of the rows of a row group from one key up to another: no more than that is held."""
    rows = range(table.num_rows)
    begin = 0 if first is None else bisect_left(rows, first, key=lambda row: key_at(table, row))
    stop = len(rows) if end is None else bisect_left(rows, end, begin, key=lambda row: key_at(table, row))
    if stop - begin < len(rows):
        table = table.take(pa.arange(begin, stop))
    return _without(table, floors).cast(SEGMENT_SCHEMA)
