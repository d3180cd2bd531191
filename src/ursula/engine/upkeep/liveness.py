"""Which stored rows are still live, judged by the state alone.

The state is examined step by step while other work continues. That is correct because a row that is not live
never becomes live again: an incarnation that is neither a stream nor a deleted stream does not come back, and
bytes before the beginning of a stream cannot be forked. So a row may be judged by the state at any moment
after it was stored.

The row that records the end of a stream is live for as long as its bucket exists: otherwise a late follower
of the feed, or a reader that counts rows of the table, would never learn that the stream is gone.
"""

import asyncio

from ...model.state import State
from ...model.stream.row import decode_stream
from ...model.stream.stream import Stream

EVERYTHING = 2**63 - 1
ALL_BUT_THE_END = EVERYTHING - 1
STEP = 256
PAUSE_SECONDS = 0.01

Owner = tuple[str, str, str]
"""Bucket, stream, incarnation."""


class LiveRows:
    """The live rows of one group; with `keep_all`, all rows are."""

    def __init__(self, state: State, keep_all: bool) -> None:
        self._state = state
        self._keep_all = keep_all

    async def first_live_offsets(self, owners: list[Owner]) -> list[int]:
        """For each stream, the offset before which its messages are not live.

        ALL_BUT_THE_END: only the row of its end is live; EVERYTHING: not even that.
        """
        offsets = []
        for count, owner in enumerate(owners, 1):
            offsets.append(self.first_live_offset(*owner))
            if count % STEP == 0:
                await asyncio.sleep(PAUSE_SECONDS)
        return offsets

    def first_live_offset(self, bucket: str, name: str, incarnation: str) -> int:
        """The same for one stream. A parked stream stays parked."""
        deleted = self._state.deleted
        if self._keep_all or incarnation in deleted.incarnations:
            return 0
        stream = self._stream(bucket, name)
        if stream is None or stream.incarnation != incarnation:
            return ALL_BUT_THE_END if self._is_in_feed(bucket, incarnation) else EVERYTHING
        if stream.fork_count or incarnation in deleted.sources:
            return 0
        return stream.beginning_before(self._state.stored.horizon)

    def _is_in_feed(self, bucket: str, incarnation: str) -> bool:
        """Whether a stream that has ended belonged to the bucket that now has this name."""
        found = self._state.buckets.get(bucket)
        _, position, _ = incarnation.split("-")
        return found is not None and int(position) >= found.position

    def earliest(self, bucket: str, name: str, incarnation: str) -> int:
        """Where a stream, or a deleted stream, begins; earlier offsets cannot be read."""
        tombstone = self._state.deleted.find(bucket, name, incarnation)
        stream = decode_stream(name, tombstone.row) if tombstone is not None else self._stream(bucket, name)
        return 0 if stream is None or stream.incarnation != incarnation else stream.earliest

    async def bytes_by_segment(self) -> dict[str, int]:
        """About how many bytes of each segment are live: those that streams and deleted streams refer to."""
        found: dict[str, int] = {}
        state, count = self._state, 0
        for bucket in list(state.buckets.values()):
            for name in bucket.all_names():
                stream = self._stream(bucket.name, name)
                if stream is not None:
                    first_live = self.first_live_offset(bucket.name, name, stream.incarnation)
                    self._add(stream, first_live, found)
                count += 1
                if count % STEP == 0:
                    await asyncio.sleep(PAUSE_SECONDS)
        for incarnation in state.deleted.by_time:
            tombstone = state.deleted.incarnations.get(incarnation)
            if tombstone is not None:
                self._add(decode_stream(tombstone.name[1], tombstone.row), 0, found)
            count += 1
            if count % STEP == 0:
                await asyncio.sleep(PAUSE_SECONDS)
        return found

    def _stream(self, bucket: str, name: str) -> Stream | None:
        found = self._state.buckets.get(bucket)
        if found is None:
            return None
        stream = found.streams.get(name)
        if stream is None and name in found.parked:
            stream = decode_stream(name, found.parked[name])
        return stream

    def _add(self, stream: Stream, first_live: int, found: dict[str, int]) -> None:
        """Add the live bytes of a stream to the segments that have them."""
        refs = stream.refs
        if refs is None:
            return
        ends = [*refs[3::3], stream.tail]
        for start, position, end in zip(refs[0::3], refs[1::3], ends, strict=True):
            segment = self._state.segments.at(position) if end > first_live else None
            if segment is not None:
                found[segment.key] = found.get(segment.key, 0) + end - max(start, first_live)
