"""Segments that someone outside put together: looked through from end to end before one takes their place."""

import asyncio
import hashlib
from collections.abc import Sequence
from itertools import pairwise

from ...cold.objects.keys import made_at, segment_prefix
from ...cold.objects.store import Store
from ...cold.segment.footer import Footer
from ...cold.segment.writer import SegmentSummary
from ...crc import crc32
from ...model.commands import Merge, StoredSegment
from ...model.outcomes import AnyOutcome, Done, Ignored
from ..failures import Failure, SegmentsReplaced, SegmentUnfit
from ..group.group import Group
from ..segment_info import segment_from_summary

TAIL_BYTES = 1 << 20
PIECE_BYTES = 8 << 20


async def replace_segments(store: Store, group: Group, old: Sequence[str], new: str) -> AnyOutcome | Failure:
    """Let one segment take the place of neighbours whose rows it has, by one command of the log."""
    table = group.state.segments
    inputs = [segment for key in old if (segment := table.get(key)) is not None]
    if not table.are_neighbours(tuple(old)):
        if (done := _done_before(group, old, new)) is not None:
            return done
        raise SegmentsReplaced("the old segments are not live neighbours any more: plan again")
    output = await _examined(store, group.number, inputs, new)
    outcome = await group.ask(Merge(tuple(old), output, made_at(new) or 0))
    group.flush_wanted = True  # so that the newest manifest does not name the old ones
    if isinstance(outcome, Ignored):
        return _done_before(group, old, new) or outcome
    return outcome


def _done_before(group: Group, old: Sequence[str], new: str) -> Done | None:
    """What was answered before to one who did not hear it, and asks again."""
    replaced = group.state.stored.replaced
    if group.state.segments.get(new) is None or any(key not in replaced for key in old):
        return None
    return Done(replaced[old[-1]].position)


async def _examined(store: Store, group: int, inputs: Sequence[StoredSegment], key: str) -> StoredSegment:
    """A segment that is whole, and has as many rows of just these positions as they have."""
    first, last = inputs[0].first, inputs[-1].last
    name = segment_prefix(group, first, last)
    if not key.startswith(name) or not key.endswith(".parquet") or made_at(key) is None:
        raise SegmentUnfit(f"its name is not {name}ULID.parquet")
    size = await store.size(key)
    tail = await store.get_range(key, max(0, size - TAIL_BYTES), size)
    wanted = int.from_bytes(tail[-8:-4], "little") + 8
    if len(tail) < wanted <= size:
        tail = await store.get_range(key, size - wanted, size)
    try:
        footer = Footer.parse(key, tail, None)
    except ValueError as error:
        raise SegmentUnfit(str(error)) from None
    _check(footer, group, inputs)
    footer_bytes = bytes(tail[-wanted:])
    summary = SegmentSummary(
        size=size,
        row_count=sum(row_group.row_count for row_group in footer.row_groups),
        payload_bytes=sum(segment.payload_bytes for segment in inputs),
        footer_bytes=len(footer_bytes),
        footer_crc=crc32(footer_bytes),
        digest=await _digest(store, footer, size),
    )
    return segment_from_summary(key, first, last, summary)


def _check(footer: Footer, group: int, inputs: Sequence[StoredSegment]) -> None:
    if footer.group != group or footer.positions != (inputs[0].first, inputs[-1].last):
        raise SegmentUnfit("it says that it is of other positions")
    rows, expected = (
        sum(span.row_count for span in footer.row_groups),
        sum(segment.rows for segment in inputs),
    )
    if rows != expected:
        raise SegmentUnfit(f"it has {rows} rows, and the old segments have {expected}")
    if any(before.last > after.first for before, after in pairwise(footer.row_groups)):
        raise SegmentUnfit("its row groups are not sorted")


async def _digest(store: Store, footer: Footer, size: int) -> str:
    """What tells its bytes from all others; each row group is checked on the way."""
    digest = hashlib.sha256()
    place = 0
    for span in footer.row_groups:
        for start, end in ((place, span.start), (span.start, span.end)):
            checksum = 0
            for begin in range(start, end, PIECE_BYTES):
                data = await store.get_range(footer.key, begin, min(end, begin + PIECE_BYTES))
                checksum = await asyncio.to_thread(_add, digest, data, checksum)
        if checksum != span.checksum:
            raise SegmentUnfit(f"the checksum of its row group {span.number} does not match")
        place = span.end
    data = await store.get_range(footer.key, place, size)
    await asyncio.to_thread(digest.update, data)
    return f"sha256:{digest.hexdigest()}"


def _add(digest: "hashlib._Hash", data: bytes | memoryview, checksum: int) -> int:
    digest.update(data)
    return crc32(data, checksum)
