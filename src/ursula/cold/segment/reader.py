"""Segments as the server reads them: footers and row groups, each by one range request, through a cache."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from ..cache import Cache
from ..objects.store import ObjectDamaged, Store
from .footer import Footer, RowGroup, decode_row_group
from .range_fetch import FetchedRange, RangeFetcher
from .stream_slice import PLAIN_COLUMNS, SINGLE_COLUMNS, SLICE_COLUMNS, RowGroupStreams, StreamSlice, as_array

T = TypeVar("T")

NEWEST_FOOTERS = 4
"""How many footers stay in memory however small the cache is: the next read usually needs the same one."""

Data = bytes | memoryview
GetRange = Callable[[int, int], Awaitable[Data]]

Name = tuple[str, str, str]
"""Bucket, stream, incarnation."""


class SegmentRef(NamedTuple):
    """A segment, with the facts that are needed to fetch and check its footer."""

    key: str
    size: int
    footer_bytes: int
    footer_crc: int


class CachedRowGroup:
    """The messages in a decoded row group, by stream. It remembers the slice that was read last."""

    def __init__(self, footer: Footer, row_group: RowGroup, data: Data, name: Name) -> None:
        self._streams: RowGroupStreams | None = None
        if row_group.first[:3] == row_group.last[:3] == name:
            found = _single_slice(footer, row_group, data)
            self.size = found.memory_bytes if found is not None else 0
        else:
            self._streams = RowGroupStreams(decode_row_group(footer, row_group, data, SLICE_COLUMNS))
            found = self._streams.find(*name)
            self.size = self._streams.memory_bytes
        self._last = name, found

    def stream_slice(self, name: Name) -> StreamSlice | None:
        """The messages of a stream; ValueError if some are missing."""
        if self._last[0] != name and self._streams is not None:
            self._last = name, self._streams.find(*name)
        return self._last[1] if self._last[0] == name else None


def _single_slice(footer: Footer, row_group: RowGroup, data: Data) -> StreamSlice | None:
    """The messages of a row group with a single stream, decoded from as few columns as possible."""
    if row_group.first_append is not None and row_group.first_record < 0:
        payloads = as_array(decode_row_group(footer, row_group, data, PLAIN_COLUMNS)["payload"])
        if payloads[-1].is_valid:  # then the offset of the last row shows whether any message is missing
            return StreamSlice.of_plain(payloads, row_group.first_append[3], row_group.last[3])
    rows = decode_row_group(footer, row_group, data, SINGLE_COLUMNS)
    return RowGroupStreams(rows).single(row_group.first[1])


class Segments:
    """The segments of a store. Footers and row groups go through a cache; threads decode them."""

    def __init__(self, store: Store, cache: Cache, threads: Executor) -> None:
        self.fetch_count = 0
        self.fetched_bytes = 0
        self._store = store
        self._ranges = RangeFetcher(store)
        self._cache = cache
        self._threads = threads
        self._in_use: WeakValueDictionary[SegmentRef, Footer] = WeakValueDictionary()
        self._newest: deque[Footer] = deque(maxlen=NEWEST_FOOTERS)

    async def footer(self, ref: SegmentRef) -> Footer:
        """The footer of a segment."""

        async def load() -> tuple[Footer, int]:
            if (footer := self._in_use.get(ref)) is not None:
                return footer, footer.memory_bytes
            begin = ref.size - ref.footer_bytes
            footer = await self._decoded(
                ref.key, begin, ref.size, lambda tail: Footer.parse(ref.key, tail, ref.footer_crc)
            )
            self._in_use[ref] = footer
            self._newest.append(footer)
            return footer, footer.memory_bytes

        return await self._cache.get(ref, load)

    def holds(self, ref: SegmentRef, row_group: RowGroup) -> bool:
        """Whether a row group is in the cache, or is being loaded."""
        return (ref.key, row_group.number) in self._cache

    def mark_consumed(self, ref: SegmentRef, row_group: RowGroup) -> None:
        """Note that a reader has finished with a row group and continues with the next."""
        self._cache.mark_consumed((ref.key, row_group.number))

    async def fetch(self, ref: SegmentRef, row_groups: Sequence[RowGroup], name: Name) -> None:
        """Load consecutive row groups into the cache, for a reader of this stream.

        A remote store gets one request for all of them.
        """
        first, last = row_groups[0].start, row_groups[-1].end
        whole: asyncio.Future[FetchedRange] | None = None

        async def get_range(start: int, end: int) -> Data:
            nonlocal whole
            if whole is None:
                whole = asyncio.ensure_future(self._ranges.get(ref.key, first, last, ref.size))
            return (await whole).between(start, end)

        await asyncio.gather(*(self._load(ref, row_group, name, get_range) for row_group in row_groups))

    async def _load(
        self, ref: SegmentRef, row_group: RowGroup, name: Name, get_range: GetRange | None = None
    ) -> CachedRowGroup:
        """A row group through the cache; it is decoded for a reader of this stream."""

        async def load() -> tuple[CachedRowGroup, int]:
            footer = self._in_use.get(ref) or await self.footer(ref)
            cached = await self._decoded(
                ref.key,
                row_group.start,
                row_group.end,
                lambda data: CachedRowGroup(footer, row_group, data, name),
                get_range,
            )
            return cached, cached.size

        return await self._cache.get((ref.key, row_group.number), load)

    async def stream_slice(self, ref: SegmentRef, row_group: RowGroup, name: Name) -> StreamSlice | None:
        """The messages of one stream in a row group."""
        cached = await self._load(ref, row_group, name)
        try:
            return cached.stream_slice(name)
        except ValueError as error:
            raise ObjectDamaged(ref.key, str(error)) from error

    async def row_group(
        self, ref: SegmentRef, row_group: RowGroup, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of a row group, with all columns or some. They are not cached."""
        footer = self._in_use.get(ref) or await self.footer(ref)
        return await self._decoded(
            ref.key,
            row_group.start,
            row_group.end,
            lambda data: decode_row_group(footer, row_group, data, columns),
        )

    async def _decoded(
        self,
        key: str,
        start: int,
        end: int,
        decode: Callable[[Data], T],
        get_range: GetRange | None = None,
    ) -> T:
        """Fetch a range of an object and decode it in a thread; ObjectDamaged if it cannot be decoded."""
        read = self._store.local_range()
        if read is not None:
            work = partial(_read_and_decode, read, key, start, end, decode)
        else:
            data = await (get_range or partial(self._store.get_range, key))(start, end)
            work = partial(decode, data)
        self.fetch_count += 1
        self.fetched_bytes += end - start
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ValueError as error:
            raise ObjectDamaged(key, str(error).removeprefix(f"{key}: ")) from error


def _read_and_decode(
    read: Callable[[str, int, int], bytes], key: str, start: int, end: int, decode: Callable[[Data], T]
) -> T:
    return decode(read(key, start, end))
