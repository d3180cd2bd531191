"""Segments as the server reads them: footers and row groups, each one range request, and kept a while."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from .cache import Cache
from .segment import Footer, Span, decode_row_group
from .store import ObjectDamaged, Store

T = TypeVar("T")


class SegmentRef(NamedTuple):
    """A segment as those name it who know what its footer must be."""

    key: str
    size: int
    footer_bytes: int
    footer_crc: int


class Segments:
    """The segments of a store, through a cache; threads decode."""

    def __init__(self, store: Store, cache: Cache, threads: Executor) -> None:
        self.fetch_count = 0
        self.fetched_bytes = 0
        self._store = store
        self._cache = cache
        self._threads = threads
        self._in_use: WeakValueDictionary[SegmentRef, Footer] = WeakValueDictionary()

    async def footer(self, ref: SegmentRef) -> Footer:
        """The footer of a segment."""

        async def load() -> tuple[Footer, int]:
            tail = await self._fetch(ref.key, ref.size - ref.footer_bytes, ref.size)
            footer = await self._decode(ref.key, lambda: Footer.parse(ref.key, tail, ref.footer_crc))
            self._in_use[ref] = footer
            return footer, footer.memory_bytes

        return await self._cache.get(ref, load)

    async def row_group(self, ref: SegmentRef, span: Span) -> pa.Table:
        """All columns of a row group."""

        async def load() -> tuple[pa.Table, int]:
            footer = self._in_use.get(ref) or await self.footer(ref)
            data = await self._fetch(ref.key, span.start, span.end)
            table = await self._decode(ref.key, lambda: decode_row_group(footer, span, data))
            return table, table.nbytes

        return await self._cache.get((ref.key, span.number), load)

    async def _fetch(self, key: str, start: int, end: int) -> bytes:
        data = await self._store.get_range(key, start, end)
        self.fetch_count += 1
        self.fetched_bytes += len(data)
        return data

    async def _decode(self, key: str, work: Callable[[], T]) -> T:
        """Have a thread do it; what it cannot make sense of is damaged."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ValueError as error:
            raise ObjectDamaged(key, str(error).removeprefix(f"{key}: ")) from error
