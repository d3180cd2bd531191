"""The rows of a merge: a survey of the inputs first, then their live rows, one range of keys at a time.

Every input is sorted by key, so a range of keys is a slice of each of its row groups, and only the rows of
one range are in memory, however large the inputs are. A row group that extends over several ranges is read
for each of them.
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
_SURVEY_COLUMNS = [*_OWNER_COLUMNS, "kind", "offset", "next_offset", "event"]
_ENDS = pa.array(["delete", "expire"])
_FIRST_LIVE = pa.schema([("incarnation", pa.string()), ("first_live", pa.int64())])


class _Input(NamedTuple):
    """A segment to be merged."""

    ref: SegmentRef
    footer: Footer


class _Gap(NamedTuple):
    """A stream whose messages before this offset, where the input continues it, were left out."""

    owner: Owner
    start: int
    input: int


class _Sample(NamedTuple):
    """Some neighbouring rows of an input: where they begin, and about how much memory they take."""

    first: Key
    size: int


class MergeRows:
    """The live rows of some neighbouring segments."""

    def __init__(self, inputs: Sequence[StoredSegment], segments: Segments, live_rows: LiveRows) -> None:
        self._segments = segments
        self._live_rows = live_rows
        self._sample_bytes = max(RANGE_BYTES // (2 * len(inputs)), SAMPLE_BYTES_MIN)
        self._stored = inputs
        self._inputs: list[_Input] = []
        self._samples: list[_Sample] = []
        self._first_live = [_FIRST_LIVE.empty_table()]
        self._extents: list[pa.Table] = []
        self._is_small = sum(map(weight, inputs)) <= RANGE_BYTES
        self._tables: list[pa.Table] = []  # all rows, if there are few
        self.row_count = 0
        """How many rows are live; considering all inputs together, a few more may be left out."""
        self.has_gaps = False

    async def survey(self) -> None:
        """Find out which rows are live; ObjectDamaged if messages that can be read are missing."""
        for number, segment in enumerate(self._stored):
            ref = segment_ref(segment)
            footer = await self._segments.footer(ref)
            self._inputs.append(_Input(ref, footer))
            for row_group in footer.row_groups:
                columns = None if self._is_small else _SURVEY_COLUMNS
                await self._survey(number, await self._segments.row_group(ref, row_group, columns))
        gaps = await asyncio.to_thread(_gaps, self._extents)
        self._extents = []
        for owner, start, number in gaps:
            if start > self._live_rows.earliest(*owner):
                problem = f"messages of {owner[1]} before {start} are missing"
                raise ObjectDamaged(self._stored[number].key, problem)
        if gaps:
            self.has_gaps = True
            self._first_live.append(_first_live([gap.owner for gap in gaps], [gap.start for gap in gaps]))

    async def _survey(self, number: int, table: pa.Table) -> None:
        owners = await asyncio.to_thread(_owners, table)
        offsets = await self._live_rows.first_live_offsets(owners)
        if any(offsets):
            self._first_live.append(await asyncio.to_thread(_first_live, owners, offsets))
            table = await asyncio.to_thread(_without_dead, table, self._first_live[-1])
        self.row_count += table.num_rows
        if self._is_small:
            self._tables.append(table)
        else:
            self._samples += await asyncio.to_thread(_samples, table, self._sample_bytes)
        self._extents.append(await asyncio.to_thread(_extents, table, number))

    async def ranges(self) -> AsyncIterator[pa.Table]:
        """The live rows, in tables whose key ranges follow each other."""
        first_live = await asyncio.to_thread(_highest, self._first_live)
        if self._is_small:
            rows = pa.concat_tables([table.cast(SEGMENT_SCHEMA) for table in self._tables])
            self._tables = []
            yield await asyncio.to_thread(_without_dead, rows, first_live)
            return
        bounds = await asyncio.to_thread(_bounds, self._samples, RANGE_BYTES)
        for first, end in zip([None, *bounds], [*bounds, None], strict=True):
            tables = [SEGMENT_SCHEMA.empty_table()]
            for ref, footer in self._inputs:
                for row_group in footer.row_groups:
                    if (first is None or row_group.last >= first) and (end is None or row_group.first < end):
                        table = await self._segments.row_group(ref, row_group)
                        tables.append(await asyncio.to_thread(_part, table, first, end, first_live))
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


def _first_live(owners: list[Owner], offsets: list[int]) -> pa.Table:
    """The streams that have rows that are not live, each with its first live offset."""
    found = [
        (incarnation, offset) for (_, _, incarnation), offset in zip(owners, offsets, strict=True) if offset
    ]
    names, numbers = zip(*found, strict=True)
    return pa.table([pa.array(names, pa.string()), pa.array(numbers, pa.int64())], schema=_FIRST_LIVE)


def _highest(tables: list[pa.Table]) -> pa.Table:
    """Each stream once, with its highest offset: a row that is not live never becomes live again."""
    found = pa.concat_tables(tables).group_by("incarnation").aggregate([("first_live", "max")])
    return found.rename_columns({"first_live_max": "first_live"}).combine_chunks()


def _without_dead(table: pa.Table, first_live: pa.Table) -> pa.Table:
    """The rows that are live; see `LiveRows.first_live_offsets`."""
    if not first_live.num_rows:
        return table
    numbers = pc.index_in(table["incarnation"], value_set=first_live["incarnation"])
    offset = pc.fill_null(pc.take(first_live["first_live"], numbers), 0)
    is_before = pc.and_(pc.equal(table["kind"], "append"), pc.less_equal(table["next_offset"], offset))
    is_end = pc.is_in(table["kind"], value_set=_ENDS)
    is_dead = pc.and_(pc.greater_equal(offset, ALL_BUT_THE_END), pc.invert(is_end))
    is_gone = pc.or_(is_dead, pc.equal(offset, EVERYTHING))
    return table.filter(pc.invert(pc.or_(is_before, is_gone)))


def _extents(table: pa.Table, number: int) -> pa.Table:
    """For each stream that has messages in a row group, where they begin and end."""
    messages = table.filter(pc.equal(table["kind"], "append"))
    bounds = messages.group_by(_OWNER_COLUMNS).aggregate([("offset", "min"), ("next_offset", "max")])
    bounds = bounds.rename_columns({"offset_min": "start", "next_offset_max": "end"})
    return bounds.append_column("input", pa.repeat(number, bounds.num_rows))


def _gaps(extents: list[pa.Table]) -> list[_Gap]:
    """Where messages of a stream were left out although older messages were not.

    This happens when a segment in the middle was rewritten and the others were not, or when a stream is
    trimmed again, since its earlier beginning is then unknown. A segment must not have such gaps, so the
    older messages are left out too. A gap in messages that can be read is a different matter: it is damage.
    """
    if not extents:
        return []
    table = pa.concat_tables(extents)
    table = table.append_column("row", pa.arange(0, table.num_rows))
    table = table.take(pc.sort_indices(table, [("incarnation", "ascending"), ("row", "ascending")]))
    later, earlier = table.slice(1), table.slice(0, max(table.num_rows - 1, 0))
    is_same = pc.equal(later["incarnation"], earlier["incarnation"])
    found = later.filter(pc.and_(is_same, pc.not_equal(later["start"], earlier["end"])))
    owners = zip(*(found[name].to_pylist() for name in _OWNER_COLUMNS), strict=True)
    return list(map(_Gap, owners, found["start"].to_pylist(), found["input"].to_pylist()))


def _samples(table: pa.Table, size: int) -> list[_Sample]:
    """Divide the live rows of a row group into samples of about this size."""
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
    """The keys that divide the rows into ranges of about this size."""
    bounds: list[Key] = []
    total = 0
    for first, more in sorted(samples):
        if total and total + more > size and (not bounds or first > bounds[-1]):
            bounds.append(first)
            total = 0
        total += more
    return bounds


def _part(table: pa.Table, first: Key | None, end: Key | None, first_live: pa.Table) -> pa.Table:
    """The live rows of a row group from one key up to another; the result refers to no other rows."""
    rows = range(table.num_rows)
    begin = 0 if first is None else bisect_left(rows, first, key=lambda row: key_at(table, row))
    stop = len(rows) if end is None else bisect_left(rows, end, begin, key=lambda row: key_at(table, row))
    if stop - begin < len(rows):
        table = table.take(pa.arange(begin, stop))
    return _without_dead(table, first_live).cast(SEGMENT_SCHEMA)
