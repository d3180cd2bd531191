"""Prefetching row groups for readers that follow a stream through the store.

A reader counts as following if it begins at the beginning of a stream or where another read ended. A prefetch
pays off only if its row groups are still in the cache when the reader asks for them, so the number of
prefetched and unread row groups is limited, per stream and in total.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import groupby, takewhile

from ...cold.cache import Cache
from ...cold.objects.store import Store, StoreFailed
from ...cold.segment.footer import RowGroup
from ...cold.segment.range_fetch import up_to_part_boundary
from ...cold.segment.reader import Name, SegmentRef, Segments
from ...cold.segment.schema import ROW_GROUP_BYTES
from ...model.state import State
from ...model.stream.stream import Ref, Stream
from ..background import BackgroundTasks
from ..segment_info import segment_ref

PREFETCH_NEAR = 2
PREFETCH_FAR = 8
"""How many row groups are prefetched at once, unless that many are already in the cache: from a store on this
machine, where more would only evict each other from the CPU's caches, and from a remote one."""

ENDS_MAX = 4096
"""How many offsets at which reads ended are remembered."""


class Prefetcher:
    """Prefetches the row groups of one group's streams into the cache."""

    def __init__(self, state: State, store: Store, segments: Segments, cache: Cache) -> None:
        self._state = state
        self._segments = segments
        self._tasks = BackgroundTasks()
        self._unread: dict[tuple[SegmentRef, RowGroup], Name] = {}  # prefetched row groups, oldest first
        self._unread_counts: Counter[Name] = Counter()
        self._unread_max = cache.bytes_max // (2 * ROW_GROUP_BYTES)
        self._ends: dict[tuple[str, int], None] = {}  # of reads, oldest first
        self._is_near = store.local_range() is not None
        count_max = PREFETCH_NEAR if self._is_near else PREFETCH_FAR
        self._count = min(count_max, self._unread_max // 2)

    def is_following(self, stream: Stream, offset: int) -> bool:
        """Whether a read begins at the beginning of a stream, or where another read ended."""
        end = stream.incarnation, offset
        return offset == stream.earliest or self._ends.pop(end, self) is None

    def note_end(self, stream: Stream, offset: int) -> None:
        """Remember where a read ended."""
        self._ends[stream.incarnation, offset] = None
        if len(self._ends) > ENDS_MAX:
            del self._ends[next(iter(self._ends))]

    def note_read(self, segment: SegmentRef, row_group: RowGroup) -> None:
        """Note that a row group is being read, or is no longer in the cache."""
        name = self._unread.pop((segment, row_group), None)
        if name is not None:
            self._unread_counts[name] -= 1
            if not self._unread_counts[name]:
                del self._unread_counts[name]

    def prefetch(self, bucket: str, owner: Stream, offset: int, limit: int) -> None:
        """Begin to fetch the next row groups of a stream for a reader that follows it."""
        name = bucket, owner.name, owner.incarnation
        if self._unread_counts[name] >= self._count or offset >= min(limit, owner.messages.start):
            return
        if self._has_room():
            refs = owner.refs_from(offset, 2 * self._count)
            self._tasks.spawn(self._fetch(name, refs, offset))

    def _has_room(self) -> bool:
        """Whether prefetched row groups will still be in the cache when their reader asks for them."""
        unread = self._unread
        while unread and not self._segments.holds(*(oldest := next(iter(unread)))):
            self.note_read(*oldest)  # its reader never asked for it
        return 0 < self._count <= self._unread_max - len(unread)

    async def _fetch(self, name: Name, refs: list[Ref], offset: int) -> None:
        """Fetch some row groups at once if too few are in the cache; the read itself reports a failure."""
        with suppress(StoreFailed):
            following = await self._following(name, refs, offset)
            cached = sum(1 for _ in takewhile(lambda it: self._segments.holds(*it), following))
            if cached < min(self._count, len(following)):
                some = following[cached : cached + self._count]
                by_segment = groupby(some, key=lambda it: it[0])
                await asyncio.gather(
                    *(self._fetch_from(name, ref, [group for _, group in its]) for ref, its in by_segment)
                )

    async def _fetch_from(self, name: Name, segment: SegmentRef, row_groups: list[RowGroup]) -> None:
        wanted = row_groups if self._is_near else up_to_part_boundary(row_groups)
        for row_group in wanted:
            self.note_read(segment, row_group)
            self._unread[segment, row_group] = name
        self._unread_counts[name] += len(wanted)
        await self._segments.fetch(segment, wanted, name)

    async def _following(self, name: Name, refs: list[Ref], offset: int) -> list[tuple[SegmentRef, RowGroup]]:
        """The row groups of a stream from an offset on, twice as many as are fetched at once."""
        found: list[tuple[SegmentRef, RowGroup]] = []
        before = None
        for ref in refs:
            segment = self._state.segment_at(ref.position)
            if segment is None or segment is before:
                continue
            before, reader_ref = segment, segment_ref(segment)
            footer = await self._segments.footer(reader_ref)
            row_group = footer.find(*name, max(offset, ref.offset))
            while row_group is not None:
                found.append((reader_ref, row_group))
                if len(found) == 2 * self._count:
                    return found
                row_group = footer.following(row_group, *name)
        return found
