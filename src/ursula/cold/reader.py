"""Segments as the server reads them: footers and row groups, each one range request, and kept a while."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from .cache import Cache
from .piece import PIECE_COLUMNS, Piece
from .segment import Footer, Span, decode_row_group
from .store import ObjectDamaged, Store

T = TypeVar("T")

Name = tuple[str, str, str]
"""Bucket, stream, incarnation."""


class SegmentRef(NamedTuple):
    """A segment as those name it who know what its footer must be."""

    key: str
    size: int
    footer_bytes: int
    footer_crc: int


class StreamRows:
    """The messages in a row group, by stream; that of the stream that was read last is at hand."""

    def __init__(self, table: pa.Table, name: Name) -> None:
        self._table = table
        self._last = name, Piece.of(table, *name)
        self.size = table.nbytes

    def piece(self, name: Name) -> Piece | None:
        """What it has of a stream; ValueError if some of it is missing."""
        if self._last[0] != name:
            self._last = name, Piece.of(self._table, *name)
        return self._last[1]


class Segments:
    """The segments of a store. Footers and what is read of streams go through a cache; threads decode."""

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
            begin = ref.size - ref.footer_bytes
            footer = await self._decoded(
                ref.key, begin, ref.size, lambda tail: Footer.parse(ref.key, tail, ref.footer_crc)
            )
            self._in_use[ref] = footer
            return footer, footer.memory_bytes

        return await self._cache.get(ref, load)

    async def stream_rows(self, ref: SegmentRef, span: Span, name: Name) -> StreamRows:
        """The messages in a row group, for who wants those of one stream first."""

        async def load() -> tuple[StreamRows, int]:
            footer = self._in_use.get(ref) or await self.footer(ref)
            rows = await self._decoded(
                ref.key,
                span.start,
                span.end,
                lambda data: StreamRows(decode_row_group(footer, span, data, PIECE_COLUMNS), name),
            )
            return rows, rows.size

        return await self._cache.get((ref.key, span.number), load)

    async def piece(self, ref: SegmentRef, span: Span, name: Name) -> Piece | None:
        """What a row group has of one stream."""
        rows = await self.stream_rows(ref, span, name)
        try:
            return rows.piece(name)
        except ValueError as error:
            raise ObjectDamaged(ref.key, str(error)) from error

    async def row_group(self, ref: SegmentRef, span: Span, columns: Sequence[str] | None = None) -> pa.Table:
        """A row group, which is not kept; all columns, or some."""
        footer = self._in_use.get(ref) or await self.footer(ref)
        return await self._decoded(
            ref.key, span.start, span.end, lambda data: decode_row_group(footer, span, data, columns)
        )

    async def _decoded(self, key: str, start: int, end: int, decode: Callable[[bytes], T]) -> T:
        """What a thread makes of some bytes of an object; what it can make nothing of is damaged."""
        read = self._store.local_range()
        data = await self._store.get_range(key, start, end) if read is None else None
        self.fetch_count += 1
        self.fetched_bytes += end - start

        def work() -> T:
            return decode(read(key, start, end) if data is None and read is not None else data or b"")

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ValueError as error:
            raise ObjectDamaged(key, str(error).removeprefix(f"{key}: ")) from error
