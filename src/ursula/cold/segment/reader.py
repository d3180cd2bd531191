"""Segments as the server reads them: footers and row groups, each one range request, and kept a while."""

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
from .range_fetch import Stretch, Stretches
from .segment import Footer, Span, decode_row_group
from .stream_slice import PIECE_COLUMNS, PLAIN_COLUMNS, SOLE_COLUMNS, Piece, Pieces, as_array

T = TypeVar("T")

NEWEST_FOOTERS = 4
"""So many are at hand however small the cache is: who reads on wants the same one again."""

Data = bytes | memoryview
Get = Callable[[int, int], Awaitable[Data]]

Name = tuple[str, str, str]
"""Bucket, stream, incarnation."""


class SegmentRef(NamedTuple):
    """A segment as those name it who know what its footer must be."""

    key: str
    size: int
    footer_bytes: int
    footer_crc: int


class StreamRows:
    """The messages in a row group, by stream; those of the stream that was read last are at hand."""

    def __init__(self, footer: Footer, span: Span, data: Data, name: Name) -> None:
        self._pieces: Pieces | None = None
        if span.first[:3] == span.last[:3] == name:
            piece = _sole_piece(footer, span, data)
            self.size = piece.memory_bytes if piece is not None else 0
        else:
            self._pieces = Pieces(decode_row_group(footer, span, data, PIECE_COLUMNS))
            piece = self._pieces.find(*name)
            self.size = self._pieces.memory_bytes
        self._last = name, piece

    def piece(self, name: Name) -> Piece | None:
        """What it has of a stream; ValueError if some of it is missing."""
        if self._last[0] != name and self._pieces is not None:
            self._last = name, self._pieces.find(*name)
        return self._last[1] if self._last[0] == name else None


def _sole_piece(footer: Footer, span: Span, data: Data) -> Piece | None:
    """What a row group has of its only stream, from as few columns as tell."""
    if span.first_append is not None and span.first_record < 0:
        payloads = as_array(decode_row_group(footer, span, data, PLAIN_COLUMNS)["payload"])
        if payloads[-1].is_valid:  # then the offset of the last row tells whether any is missing
            return Piece.of_plain(payloads, span.first_append[3], span.last[3])
    return Pieces(decode_row_group(footer, span, data, SOLE_COLUMNS)).sole(span.first[1])


class Segments:
    """The segments of a store. Footers and what is read of streams go through a cache; threads decode."""

    def __init__(self, store: Store, cache: Cache, threads: Executor) -> None:
        self.fetch_count = 0
        self.fetched_bytes = 0
        self._store = store
        self._stretches = Stretches(store)
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

    def holds(self, ref: SegmentRef, span: Span) -> bool:
        """Whether a row group is at hand, or will be soon."""
        return (ref.key, span.number) in self._cache

    def spend(self, ref: SegmentRef, span: Span) -> None:
        """Say that someone has read a row group and goes on to the next."""
        self._cache.spend((ref.key, span.number))

    async def fetch(self, ref: SegmentRef, spans: Sequence[Span], name: Name) -> None:
        """Have row groups at hand that lie one behind the other, for who will read a stream there.

        What is far away comes with one request.
        """
        first, last = spans[0].start, spans[-1].end
        whole: asyncio.Future[Stretch] | None = None

        async def part(start: int, end: int) -> Data:
            nonlocal whole
            if whole is None:
                whole = asyncio.ensure_future(self._stretches.get(ref.key, first, last, ref.size))
            return (await whole).between(start, end)

        await asyncio.gather(*(self._rows(ref, span, name, part) for span in spans))

    async def _rows(self, ref: SegmentRef, span: Span, name: Name, get: Get | None = None) -> StreamRows:
        """The messages in a row group, for who wants those of one stream first."""

        async def load() -> tuple[StreamRows, int]:
            footer = self._in_use.get(ref) or await self.footer(ref)
            rows = await self._decoded(
                ref.key, span.start, span.end, lambda data: StreamRows(footer, span, data, name), get
            )
            return rows, rows.size

        return await self._cache.get((ref.key, span.number), load)

    async def piece(self, ref: SegmentRef, span: Span, name: Name) -> Piece | None:
        """What a row group has of one stream."""
        rows = await self._rows(ref, span, name)
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

    async def _decoded(
        self, key: str, start: int, end: int, decode: Callable[[Data], T], get: Get | None = None
    ) -> T:
        """What a thread makes of some bytes of an object; what it can make nothing of is damaged."""
        read = self._store.local_range()
        if read is not None:
            work = partial(_read_and_decode, read, key, start, end, decode)
        else:
            data = await (get(start, end) if get is not None else self._store.get_range(key, start, end))
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
