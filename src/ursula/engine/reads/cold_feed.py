"""Reading the feed of a bucket from the store: segment after segment, then on into memory."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pyarrow as pa

from ...cold.cache import Cache
from ...cold.feed_spool import Spool
from ...cold.objects.store import ObjectMissing
from ...cold.segment.reader import Segments
from ...model.commands import Producer, StoredSegment
from ...model.decide.refusals import bucket_not_found
from ...model.outcomes import FeedEntry, FeedPage, FeedRow, Refused
from ...model.read.feed import ROW_BYTES, ROWS_MAX, feed_tail
from ...model.read.not_in_memory import FeedNotInMemory
from ...model.state import State
from ...model.stream.blob_slice import BlobSlice
from ...model.text.media_type import media_type_of
from ..segment_info import segment_ref
from .cold_stream import ColdReads

REPLANS_MAX = 3


class FeedReads:
    """Feeds of one group through the store."""

    def __init__(
        self,
        state: State,
        cold: ColdReads,
        segments: Segments,
        spools: Cache,
        threads: Executor,
        folder: Path,
    ) -> None:
        self._state = state
        self._cold = cold
        self._segments = segments
        self._spools = spools
        self._threads = threads
        self._folder = folder
        self._sorting = asyncio.Lock()  # one at a time: it needs memory for a whole segment

    async def read(self, bucket: str, after: int, until: int | None, bytes_max: int) -> FeedPage | Refused:
        """About `bytes_max` of the history of a bucket after a position."""
        page = _PageBuilder(bytes_max)
        state, position, replans = self._state, after, 0
        while True:
            found = state.buckets.get(bucket)
            if found is None:
                return bucket_not_found(bucket)
            if page.is_full or (until is not None and position >= until):
                break
            segment = state.segment_after(position) if position < state.stored_to else None
            if segment is None:
                position = max(position, min(state.stored_to, feed_tail(found)))
                hot = await self._read_hot(bucket, position, until, page.bytes_left)
                if isinstance(hot, Refused):
                    return hot
                if hot is None:
                    continue  # it has just been stored
                page.add_all(hot.entries)
                position = hot.next_position
                break
            try:
                position = await self._read_segment(segment, bucket, position, until, page)
            except ObjectMissing:
                replans += 1
                if replans > REPLANS_MAX:
                    raise
        tail = feed_tail(found)
        if until is None and position > tail:
            position = max(after, tail)  # as if everything were in memory
        return FeedPage(page.entries, position, max(tail, position))

    async def _read_hot(
        self, bucket: str, after: int, until: int | None, bytes_max: int
    ) -> FeedPage | Refused | None:
        page = self._state.reads.read_feed(bucket, after, until, bytes_max, with_slices=True)
        if isinstance(page, FeedNotInMemory):
            return None
        if isinstance(page, FeedPage):
            in_blobs = [
                row for entry in page.entries for row in entry.rows if isinstance(row.payload, BlobSlice)
            ]
            fetched = await self._cold.fetch([row.payload for row in in_blobs])  # type: ignore[misc]
            for row, payload in zip(in_blobs, fetched, strict=True):
                row.payload = payload
        return page

    async def _read_segment(
        self, segment: StoredSegment, bucket: str, after: int, until: int | None, page: "_PageBuilder"
    ) -> int:
        """Add rows of a segment; returns how far it was read."""
        spool = await self._spool(segment, bucket)
        if spool is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, page.add_from, spool, after, until)
            if page.is_full and page.entries:
                return page.entries[-1].position
        return segment.last if until is None else min(segment.last, until)

    async def _spool(self, segment: StoredSegment, bucket: str) -> Spool | None:
        """The rows of a bucket in a segment, in order; None if it has none."""
        ref = segment_ref(segment)
        footer = await self._segments.footer(ref)
        row_groups = footer.of_bucket(bucket)
        if not row_groups:
            return None

        async def load() -> tuple[Spool, int]:
            async with self._sorting:
                tables = [await self._segments.row_group(ref, row_group) for row_group in row_groups]
                loop = asyncio.get_running_loop()
                spool = await loop.run_in_executor(self._threads, Spool.write, self._folder, tables, bucket)
                return spool, spool.size

        return await self._spools.get((segment.key, bucket), load)


class _PageBuilder:
    """A page to which entries are added; an entry is never divided."""

    def __init__(self, bytes_max: int) -> None:
        self.entries: list[FeedEntry] = []
        self.bytes_left = bytes_max
        self._rows = 0

    @property
    def is_full(self) -> bool:
        return bool(self.entries) and (self.bytes_left <= 0 or self._rows >= ROWS_MAX)

    def add_all(self, entries: list[FeedEntry]) -> None:
        self.entries += entries

    def add_from(self, spool: Spool, after: int, until: int | None) -> None:
        """Add entries of a spool until the page is full. Blocking: for a thread."""
        for batch in spool.batches_after(after):
            for entry in _entries(batch):
                if entry.position <= after:
                    continue
                if self.is_full or (until is not None and entry.position > until):
                    return
                self.entries.append(entry)
                self._rows += len(entry.rows)
                self.bytes_left -= sum(len(row.payload or b"") + ROW_BYTES for row in entry.rows)


def _entries(batch: pa.RecordBatch) -> Iterator[FeedEntry]:
    """The log entries in a batch of rows."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    ats = columns.pop("appended_at").cast(pa.int64()).to_pylist()
    values = {name: column.to_pylist() for name, column in columns.items()}
    entry: FeedEntry | None = None
    for row, position in enumerate(values["position"]):
        if entry is None or entry.position != position:
            if entry is not None:
                yield entry
            entry = FeedEntry(position, ats[row], [])
        kind, producer_id, event = values["kind"][row], values["producer_id"][row], values["event"][row]
        content_type = values["content_type"][row]
        entry.rows.append(
            FeedRow(
                index=values["index"][row],
                kind=kind,
                stream=values["stream"][row],
                incarnation=values["incarnation"][row],
                content_type=content_type,
                media_type=media_type_of(content_type),
                offset=values["offset"][row],
                next_offset=values["next_offset"][row],
                record=values["record"][row],
                payload=values["payload"][row],
                producer=None
                if producer_id is None
                else Producer(producer_id, values["producer_epoch"][row], values["producer_seq"][row]),
                event=None if event is None or kind == "append" else event.encode(),
            )
        )
    if entry is not None:
        yield entry
