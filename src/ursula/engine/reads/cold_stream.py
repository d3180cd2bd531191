"""Reads of a stream that need the store: by offset, by ordinal, and for the facts about old bytes.

A read is planned from the state without waiting, one range at a time: the next range is hot, in a segment, or
in a blob. Stored bytes never change, so nothing that happens during the read can make them wrong; if an
object is gone because it was merged, the range is planned again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...cold.cache import Cache
from ...cold.objects.store import ObjectMissing, Store
from ...cold.segment.footer import Footer, RowGroup
from ...cold.segment.reader import SegmentRef, Segments
from ...cold.segment.stream_slice import StreamSlice
from ...model.commands import StoredSegment
from ...model.decide.refusals import inside_json_message, refused, trimmed_off
from ...model.outcomes import Page, RecordPage, Refused
from ...model.state import State
from ...model.stream.blob_slice import BlobSlice
from ...model.stream.messages import Payload
from ...model.stream.stream import Ref, Stream
from ..segment_info import segment_ref
from .blobs import BlobReads
from .prefetch import Prefetcher

SLICES_PER_PREFETCH = 2
"""A read of many small slices considers a prefetch only once per this many slices."""

BETWEEN = "these bytes are just being moved to the store: try again"


class RangeReplaced(Exception):
    """The range was trimmed, or is for a moment neither in memory nor in the store."""


class FoundSlice(NamedTuple):
    """Some messages of a stream, and the row group that has them."""

    messages: StreamSlice
    segment: SegmentRef
    row_group: RowGroup


class ColdReads:
    """Reads of one group through the store."""

    def __init__(self, state: State, store: Store, segments: Segments, cache: Cache) -> None:
        self._state = state
        self._segments = segments
        self._prefetcher = Prefetcher(state, store, segments, cache)
        self.fetch = BlobReads(store, cache).fetch

    async def read(
        self, bucket: str, stream: Stream, offset: int, bytes_max: int, whole: bool
    ) -> Page | Refused:
        """A page of a stream from an offset that is not in memory."""
        chunks: list[bytes] = []
        whole = whole or stream.is_json
        try:
            end = await self._read_range(bucket, stream, offset, bytes_max, whole, chunks)
        except RangeReplaced:
            return self._refusal(bucket, stream, offset)
        if isinstance(end, Refused):
            return end
        now = self._state.visible(bucket, stream.name, stream.incarnation)
        if isinstance(now, Refused):
            return now
        return Page(
            incarnation=now.incarnation,
            content_type=now.content_type,
            media_type=now.media_type,
            chunks=chunks,
            offset=offset,
            next_offset=end,
            tail=now.tail,
            closed=now.closed,
        )

    async def read_records(
        self,
        bucket: str,
        stream: Stream,
        offset: int | None,
        record: int | None,
        records_max: int,
        bytes_max: int,
    ) -> RecordPage | Refused:
        """Messages of a JSON stream from an offset or an ordinal that is not in memory."""
        chunks: list[bytes] = []
        try:
            if record is not None:
                offset = await self._offset_of(bucket, stream, record)
            else:
                offset = 0 if offset is None else offset
                record = await self.record_at(bucket, stream, offset)
                if record is None:
                    return refused("invalid_offset", "no message begins at this offset", stream)
            end = await self._read_range(bucket, stream, offset, bytes_max, True, chunks)
        except RangeReplaced:
            return self._refusal(bucket, stream, offset or 0)
        if isinstance(end, Refused):
            return end
        now = self._state.visible(bucket, stream.name, stream.incarnation)
        if isinstance(now, Refused):
            return now
        if len(chunks) > records_max:
            del chunks[records_max:]
            end = offset + sum(map(len, chunks))
        return RecordPage(
            incarnation=now.incarnation,
            content_type=now.content_type,
            media_type=now.media_type,
            chunks=chunks,
            offset=offset,
            next_offset=end,
            tail=now.tail,
            closed=now.closed,
            record=record,
            first_record=now.first_record,
            next_record=now.next_record,
        )

    async def record_at(self, bucket: str, stream: Stream, offset: int) -> int | None:
        """How many messages precede an offset (0 if they have no ordinals); None if it is not a boundary."""
        if offset == stream.tail:
            return stream.next_record
        owner, _ = stream.owner_of(offset)
        if offset >= owner.messages.start:
            return stream.record_at(offset) if stream.is_boundary(offset) else None
        messages = (await self._slice_at(bucket, owner, offset)).messages
        if not messages.is_boundary(offset):
            return None
        return 0 if messages.first_record is None else messages.first_record + messages.count_before(offset)

    async def sub_offset(self, bucket: str, stream: Stream, offset: int, count: int) -> int | None:
        """The offset that is `count` bytes (JSON: messages) further in the same append, or None."""
        owner, limit = stream.owner_of(offset)
        if offset >= owner.messages.start:
            return stream.sub_offset(offset, count)
        messages = (await self._slice_at(bucket, owner, offset)).messages
        end = min(messages.append_end_after(offset), limit)
        if not stream.is_json:
            return offset + count if offset + count <= end else None
        # The append may continue in the next slice.
        while end == messages.end and end < min(limit, owner.messages.start):
            following = (await self._slice_at(bucket, owner, end)).messages
            if following.first_command != messages.last_command:
                break
            count -= len(messages.message_ends(offset, end))
            if count <= 0:
                count += len(messages.message_ends(offset, end))
                break
            offset = end
            messages, end = following, min(following.append_end_after(end), limit)
        ends = messages.message_ends(offset, end)
        return ends[count - 1] if 0 < count <= len(ends) else None

    async def _read_range(
        self, bucket: str, stream: Stream, offset: int, bytes_max: int, whole: bool, into: list[bytes]
    ) -> int | Refused:
        """Add about `bytes_max` bytes from the offset on to `into`; return where they end.

        Once half of `bytes_max` is read, the range ends where a row group ends, so that the next read begins
        with a whole row group. A reader that begins in the middle of a row group gets only the rest of it if
        the row group has that much of the stream: from there on, its reads begin where row groups do.
        """
        begin, enough = offset, bytes_max // 2
        is_following = self._prefetcher.is_following(stream, offset)
        slice_count = 0
        while offset < stream.tail and (bytes_max > 0 or not into):
            owner, limit = stream.owner_of(offset)
            before = offset
            if offset >= owner.messages.start:
                # A message that is too large for the rest of the page waits, unless it is the first one.
                hot: list[Payload] = [b""] if into else []
                skipped = len(hot)
                offset = owner.messages.read(offset, limit, bytes_max, whole, hot)
                into.extend(await self._fetch_blobs(hot[skipped:]))
            else:
                messages, segment, row_group = await self._slice_at(bucket, owner, offset)
                if offset == begin and stream.is_json and not messages.is_boundary(offset):
                    return inside_json_message(stream)
                offset = messages.read(offset, limit, bytes_max, whole, into, split=whole)
                if is_following and (before == messages.start or offset == messages.end):
                    if slice_count % SLICES_PER_PREFETCH == 0:
                        self._prefetcher.prefetch(bucket, owner, messages.end, limit)
                    slice_count += 1
                if is_following and offset == messages.end:
                    self._segments.mark_consumed(segment, row_group)
                counted_from = min(begin, messages.start) if is_following else begin
                if offset == messages.end and offset - counted_from >= enough:
                    break
            if offset == before:
                break
            bytes_max -= offset - before
        self._prefetcher.note_end(stream, offset)
        return offset

    async def _fetch_blobs(self, payloads: Sequence[Payload]) -> list[bytes]:
        """The payloads, with the bytes of those that are in blobs."""
        fetched = iter(await self.fetch([payload for payload in payloads if isinstance(payload, BlobSlice)]))
        return [next(fetched) if isinstance(payload, BlobSlice) else payload for payload in payloads]

    async def _offset_of(self, bucket: str, stream: Stream, record: int) -> int:
        """Where the message with this ordinal begins."""
        owner = stream.owner_of_record(record)
        if record >= owner.record_base:
            return stream.offset_of(record)
        ref = owner.ref_of_record(record)
        if ref is None:
            raise RangeReplaced
        segment = self._segment_of(ref)
        footer = await self._footer(segment)
        row_group = footer.find_record(bucket, owner.name, owner.incarnation, record)
        messages = await self._read_slice(segment, row_group, bucket, owner)
        if messages is not None and messages.first_record is not None:
            index = record - messages.first_record
            if 0 <= index < len(messages.ends):
                return messages.ends[index - 1] if index else messages.start
        raise RangeReplaced

    async def _slice_at(self, bucket: str, owner: Stream, offset: int) -> FoundSlice:
        """The messages around an offset that is in the store."""
        for again in (True, False):
            try:
                return await self._find_slice(bucket, owner, offset)
            except ObjectMissing:
                if not again:
                    raise
        raise RangeReplaced

    async def _find_slice(self, bucket: str, owner: Stream, offset: int) -> FoundSlice:
        ref = owner.ref_at(offset)
        if ref is None:
            raise RangeReplaced
        segment = self._segment_of(ref)
        footer = await self._footer(segment)
        row_group = footer.find(bucket, owner.name, owner.incarnation, offset)
        messages = await self._read_slice(segment, row_group, bucket, owner)
        if messages is None or row_group is None or not messages.start <= offset < messages.end:
            raise RangeReplaced
        return FoundSlice(messages, segment_ref(segment), row_group)

    def _segment_of(self, ref: Ref) -> StoredSegment:
        segment = self._state.segment_at(ref.position)
        if segment is None:
            raise RangeReplaced
        return segment

    async def _footer(self, segment: StoredSegment) -> Footer:
        return await self._segments.footer(segment_ref(segment))

    async def _read_slice(
        self, segment: StoredSegment, row_group: RowGroup | None, bucket: str, owner: Stream
    ) -> StreamSlice | None:
        if row_group is None:
            return None
        ref = segment_ref(segment)
        self._prefetcher.note_read(ref, row_group)
        return await self._segments.stream_slice(ref, row_group, (bucket, owner.name, owner.incarnation))

    def _refusal(self, bucket: str, stream: Stream, offset: int) -> Refused:
        """Why a stream can no longer be read at the offset."""
        found = self._state.visible(bucket, stream.name, stream.incarnation)
        if isinstance(found, Refused):
            return found
        if offset < found.earliest:
            return trimmed_off(found)
        return refused("unavailable", BETWEEN, found)
