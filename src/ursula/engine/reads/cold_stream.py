"""Reads that reach into the store: by offset or ordinal, and what a command must know of old bytes.

A read is planned from the state without waiting, one stretch at a time: the next one is hot, or in a segment,
or in a blob. What is fetched never changes, so nothing that happens meanwhile can make it wrong; if an object
is gone because it was merged, the stretch is planned again.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, takewhile
from typing import NamedTuple

from msgspec.structs import replace

from ...cold.cache import Cache
from ...cold.objects.store import ObjectMissing, Store, StoreFailed
from ...cold.segment.footer import Footer, RowGroup
from ...cold.segment.range_fetch import up_to_part_boundary
from ...cold.segment.reader import Name, SegmentRef, Segments
from ...cold.segment.schema import ROW_GROUP_BYTES
from ...cold.segment.stream_slice import StreamSlice
from ...model.commands import Create, ForkedAt, StoredSegment
from ...model.decide.create import beyond_append, inside_message
from ...model.decide.refusals import refused, trimmed_off
from ...model.outcomes import Page, RecordPage, Refused
from ...model.state import State
from ...model.stream.blob_slice import BlobSlice
from ...model.stream.messages import Payload
from ...model.stream.stream import Ref, Stream
from ..segment_info import segment_ref
from .blobs import BlobReads
from .resolve_offsets import NeedsResolving, subject_of

READ_AHEAD = 2
READ_AHEAD_FAR = 8
"""So many row groups are fetched at once before they are asked for, when there are not so many already:
from a store on this machine, where more would only push each other out of the processor's caches, and from
one that is far away."""

LOOK_AHEAD = 2
"""A read of many small pieces looks after so many of them whether more should be fetched."""

ENDS_MAX = 4096
"""Of so many reads it is known where they ended."""


class RangeReplaced(Exception):
    """What was to be read was trimmed, or is between memory and store for another moment."""


class Found(NamedTuple):
    """Some messages of a stream, and the row group that has them."""

    piece: StreamSlice
    ref: SegmentRef
    span: RowGroup


class ColdReads:
    """Reads of one group through the store."""

    def __init__(self, state: State, store: Store, segments: Segments, cache: Cache) -> None:
        self._state = state
        self._segments = segments
        self.fetch = BlobReads(store, cache).fetch
        self._ahead: set[asyncio.Task[None]] = set()
        self._unread: dict[tuple[SegmentRef, RowGroup], Name] = {}  # what was fetched ahead, oldest first
        self._unread_of: Counter[Name] = Counter()
        self._ends: dict[tuple[str, int], None] = {}  # of reads, in the order of time
        self._unread_max = cache.bytes_max // (2 * ROW_GROUP_BYTES)
        self._is_near = store.local_range() is not None
        ahead_max = READ_AHEAD if self._is_near else READ_AHEAD_FAR
        self._ahead_count = min(ahead_max, self._unread_max // 2)

    async def read(
        self, bucket: str, stream: Stream, offset: int, bytes_max: int, whole: bool
    ) -> Page | Refused:
        """A page of a stream from an offset on that is not in memory."""
        chunks: list[bytes] = []
        whole = whole or stream.is_json
        try:
            end = await self._gather(bucket, stream, offset, bytes_max, whole, chunks)
        except RangeReplaced:
            return self._refusal(bucket, stream, offset)
        if isinstance(end, Refused):
            return end
        now = self._state.visible(bucket, stream.name, stream.incarnation)
        if isinstance(now, Refused):
            return now
        return Page(
            now.incarnation, now.content_type, now.media_type, chunks, offset, end, now.tail, now.closed
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
        """Messages of a JSON stream from an offset or an ordinal on that is not in memory."""
        chunks: list[bytes] = []
        try:
            if record is not None:
                offset = await self._offset_of(bucket, stream, record)
            else:
                offset = 0 if offset is None else offset
                place = await self.place_of(bucket, stream, offset)
                if place is None:
                    return refused("invalid_offset", "no message begins at this offset", stream)
                record = place
            end = await self._gather(bucket, stream, offset, bytes_max, True, chunks)
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
            now.incarnation,
            now.content_type,
            now.media_type,
            chunks,
            offset,
            end,
            now.tail,
            now.closed,
            record,
            now.first_record,
            now.next_record,
        )

    async def resolve(self, command: NeedsResolving) -> NeedsResolving | Refused:
        """A command with what the store knows of the bytes it speaks of, or why it is refused."""
        subject = subject_of(self._state, command)
        if subject is None:
            return command  # it is gone by now: memory knows enough to refuse it
        stream, offset = subject
        try:
            place = await self.place_of(command.bucket, stream, offset)
            if not isinstance(command, Create):
                if place is None:
                    return refused("invalid_offset", "no message begins or ends at this offset", stream)
                return replace(command, record=place, incarnation=stream.incarnation)
            return await self._prove_fork(command, stream, offset, place)
        except RangeReplaced:
            return refused("unavailable", "what was asked for is on its way to the store: try again", stream)

    async def _prove_fork(
        self, command: Create, stream: Stream, offset: int, place: int | None
    ) -> Create | Refused:
        if place is None and stream.is_json:
            return inside_message()
        count = command.fork.sub_offset if command.fork is not None else 0
        exact = await self.sub_offset(command.bucket, stream, offset, count) if count else offset
        if exact is None:
            return beyond_append()
        record = place or 0
        if stream.is_json and exact != offset:
            record = await self.place_of(command.bucket, stream, exact) or 0
        return replace(command, forked_at=ForkedAt(stream.incarnation, exact, record))

    async def place_of(self, bucket: str, stream: Stream, offset: int) -> int | None:
        """How many messages lie before an offset (0 if they have no ordinals); None if it is no boundary."""
        if offset == stream.tail:
            return stream.next_record
        owner, _ = stream.owner_of(offset)
        if offset >= owner.messages.start:
            return stream.record_at(offset) if stream.is_boundary(offset) else None
        piece, *_ = await self._piece(bucket, owner, offset)
        if not piece.is_boundary(offset):
            return None
        return 0 if piece.first_record is None else piece.first_record + piece.count_before(offset)

    async def sub_offset(self, bucket: str, stream: Stream, offset: int, count: int) -> int | None:
        """The offset so many bytes (JSON: messages) further in the same append, or None."""
        owner, limit = stream.owner_of(offset)
        if offset >= owner.messages.start:
            return stream.sub_offset(offset, count)
        piece, *_ = await self._piece(bucket, owner, offset)
        end = min(piece.append_end_after(offset), limit)
        if not stream.is_json:
            return offset + count if offset + count <= end else None
        while end == piece.end and end < min(limit, owner.messages.start):  # it may go on in the next piece
            following, *_ = await self._piece(bucket, owner, end)
            if following.first_command != piece.last_command:
                break
            count -= len(piece.message_ends(offset, end))
            if count <= 0:
                count += len(piece.message_ends(offset, end))
                break
            offset = end
            piece, end = following, min(following.append_end_after(end), limit)
        ends = piece.message_ends(offset, end)
        return ends[count - 1] if 0 < count <= len(ends) else None

    async def _gather(
        self, bucket: str, stream: Stream, offset: int, bytes_max: int, whole: bool, into: list[bytes]
    ) -> int | Refused:
        """Add about `bytes_max` from the offset on; return where they end.

        With half of it taken, they end where a row group ends: whoever reads on has the next one as a whole.
        Inside of one that has as much of the stream, who reads on gets the rest only, to be in step again.
        """
        begin, enough = offset, bytes_max // 2
        reads_on = self._reads_on(stream, offset)
        pieces = 0
        while offset < stream.tail and (bytes_max > 0 or not into):
            owner, limit = stream.owner_of(offset)
            before = offset
            if offset >= owner.messages.start:
                held: list[Payload] = (
                    [b""] if into else []
                )  # with some taken, a message that is too large waits
                taken = len(held)
                offset = owner.messages.read(offset, limit, bytes_max, whole, held)
                into.extend(await self._resolved(held[taken:]))
            else:
                piece, ref, span = await self._piece(bucket, owner, offset)
                if offset == begin and stream.is_json and not piece.is_boundary(offset):
                    message = "the offset lies inside a JSON message"
                    return Refused("invalid_offset", message, stream.incarnation, stream.tail)
                offset = piece.read(offset, limit, bytes_max, whole, into, split=whole)
                if reads_on and (before == piece.start or offset == piece.end):
                    if pieces % LOOK_AHEAD == 0:
                        self._read_ahead(bucket, owner, piece.end, limit)
                    pieces += 1
                if reads_on and offset == piece.end:
                    self._segments.mark_consumed(ref, span)
                in_step_from = min(begin, piece.start) if reads_on else begin
                if offset == piece.end and offset - in_step_from >= enough:
                    break
            if offset == before:
                break
            bytes_max -= offset - before
        self._ends[stream.incarnation, offset] = None
        if len(self._ends) > ENDS_MAX:
            del self._ends[next(iter(self._ends))]
        return offset

    def _reads_on(self, stream: Stream, offset: int) -> bool:
        """Whether someone reads a stream from its beginning, or from where another read ended."""
        end = stream.incarnation, offset
        return offset == stream.earliest or self._ends.pop(end, self) is None

    def _read_ahead(self, bucket: str, owner: Stream, offset: int, limit: int) -> None:
        """Have the next row groups fetched for someone who seems to read on and on."""
        name = bucket, owner.name, owner.incarnation
        if self._unread_of[name] >= self._ahead_count or offset >= min(limit, owner.messages.start):
            return
        if not self._has_room_ahead():
            return
        fetching = self._fetch_ahead(name, owner.refs_from(offset, 2 * self._ahead_count), offset)
        task = asyncio.get_running_loop().create_task(fetching)
        self._ahead.add(task)
        task.add_done_callback(self._ahead.discard)

    def _has_room_ahead(self) -> bool:
        """Whether what is fetched ahead will still be in the cache when its reader comes for it."""
        unread = self._unread
        while unread and not self._segments.holds(*(oldest := next(iter(unread)))):
            self._note_read(oldest)  # its reader never came
        return 0 < self._ahead_count <= self._unread_max - len(unread)

    def _note_read(self, what: tuple[SegmentRef, RowGroup]) -> None:
        """What was fetched ahead was read, or is no longer there."""
        name = self._unread.pop(what, None)
        if name is not None:
            self._unread_of[name] -= 1
            if not self._unread_of[name]:
                del self._unread_of[name]

    async def _fetch_ahead(self, name: Name, refs: list[Ref], offset: int) -> None:
        """Fetch some row groups at once, if too few are at hand; who needs them is told what is wrong."""
        with suppress(StoreFailed):
            following = await self._following(name, refs, offset)
            at_hand = sum(1 for _ in takewhile(lambda it: self._segments.holds(*it), following))
            if at_hand < min(self._ahead_count, len(following)):
                some = following[at_hand : at_hand + self._ahead_count]
                by_segment = groupby(some, key=lambda it: it[0])
                await asyncio.gather(
                    *(self._fetch_some(name, ref, [span for _, span in its]) for ref, its in by_segment)
                )

    async def _fetch_some(self, name: Name, ref: SegmentRef, spans: list[RowGroup]) -> None:
        wanted = spans if self._is_near else up_to_part_boundary(spans)
        for span in wanted:
            self._note_read((ref, span))
            self._unread[ref, span] = name
        self._unread_of[name] += len(wanted)
        await self._segments.fetch(ref, wanted, name)

    async def _following(self, name: Name, refs: list[Ref], offset: int) -> list[tuple[SegmentRef, RowGroup]]:
        """The row groups of a stream from an offset on, twice as many as are fetched at once."""
        found: list[tuple[SegmentRef, RowGroup]] = []
        before = None
        for ref in refs:
            segment = self._state.segment_at(ref.position)
            if segment is None or segment is before:
                continue
            before, where = segment, segment_ref(segment)
            footer = await self._segments.footer(where)
            span = footer.find(*name, max(offset, ref.offset))
            while span is not None:
                found.append((where, span))
                if len(found) == 2 * self._ahead_count:
                    return found
                span = footer.following(span, *name)
        return found

    async def _resolved(self, payloads: Sequence[Payload]) -> list[bytes]:
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
        span = footer.find_record(bucket, owner.name, owner.incarnation, record)
        piece = await self._read_piece(segment, span, bucket, owner)
        if piece is not None and piece.first_record is not None:
            index = record - piece.first_record
            if 0 <= index < len(piece.ends):
                return piece.ends[index - 1] if index else piece.start
        raise RangeReplaced

    async def _piece(self, bucket: str, owner: Stream, offset: int) -> Found:
        """The messages around an offset, which is in the store."""
        for again in (True, False):
            try:
                return await self._find_piece(bucket, owner, offset)
            except ObjectMissing:
                if not again:
                    raise
        raise RangeReplaced

    async def _find_piece(self, bucket: str, owner: Stream, offset: int) -> Found:
        ref = owner.ref_at(offset)
        if ref is None:
            raise RangeReplaced
        segment = self._segment_of(ref)
        footer = await self._footer(segment)
        span = footer.find(bucket, owner.name, owner.incarnation, offset)
        piece = await self._read_piece(segment, span, bucket, owner)
        if piece is None or span is None or not piece.start <= offset < piece.end:
            raise RangeReplaced
        return Found(piece, segment_ref(segment), span)

    def _segment_of(self, ref: Ref) -> StoredSegment:
        segment = self._state.segment_at(ref.position)
        if segment is None:
            raise RangeReplaced
        return segment

    async def _footer(self, segment: StoredSegment) -> Footer:
        return await self._segments.footer(segment_ref(segment))

    async def _read_piece(
        self, segment: StoredSegment, span: RowGroup | None, bucket: str, owner: Stream
    ) -> StreamSlice | None:
        if span is None:
            return None
        ref = segment_ref(segment)
        self._note_read((ref, span))
        return await self._segments.stream_slice(ref, span, (bucket, owner.name, owner.incarnation))

    def _refusal(self, bucket: str, stream: Stream, offset: int) -> Refused:
        """Why a stream is not to be read at the offset any more."""
        found = self._state.visible(bucket, stream.name, stream.incarnation)
        if isinstance(found, Refused):
            return found
        if offset < found.earliest:
            return trimmed_off(found)
        return refused("unavailable", "what was asked for is on its way to the store: try again", found)
