"""Replacing segments with one that was merged outside the server, after reading it from end to end."""

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
STEP_BYTES = 8 << 20


async def replace_segments(store: Store, group: Group, old: Sequence[str], new: str) -> AnyOutcome | Failure:
    """Replace neighbouring segments with one that has their rows, with one command of the log."""
    await group.current()
    table = group.state.segments
    inputs = [segment for key in old if (segment := table.get(key)) is not None]
    if not table.are_neighbours(tuple(old)):
        if (done := _done_before(group, old, new)) is not None:
            return done
        raise SegmentsReplaced("the old segments are no longer live neighbours: plan again")
    output = await _examine(store, group.number, inputs, new)
    outcome = await group.propose_and_wait(Merge(tuple(old), output, made_at(new) or 0))
    if isinstance(outcome, Ignored):
        return _done_before(group, old, new) or outcome
    return outcome


def _done_before(group: Group, old: Sequence[str], new: str) -> Done | None:
    """The outcome of the same request, if it was done before and its client did not get the response."""
    replaced = group.state.stored.replaced
    if group.state.segments.get(new) is None or any(key not in replaced for key in old):
        return None
    return Done(replaced[old[-1]].position)


async def _examine(store: Store, group: int, inputs: Sequence[StoredSegment], key: str) -> StoredSegment:
    """The new segment, if it is intact and has the same positions and number of rows as the inputs."""
    first, last = inputs[0].first, inputs[-1].last
    name = segment_prefix(group, first, last)
    if not key.startswith(name) or not key.endswith(".parquet") or made_at(key) is None:
        raise SegmentUnfit(f"its name is not {name}ULID.parquet")
    size = await store.size(key)
    tail = await store.get_range(key, max(0, size - TAIL_BYTES), size)
    footer_size = Footer.size_in(tail)
    if len(tail) < footer_size <= size:
        tail = await store.get_range(key, size - footer_size, size)
    try:
        footer = Footer.parse(key, tail, None)
    except ValueError as error:
        raise SegmentUnfit(str(error)) from None
    _check(footer, group, inputs)
    footer_bytes = bytes(tail[-footer_size:])
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
        raise SegmentUnfit("it is of other positions")
    rows = sum(row_group.row_count for row_group in footer.row_groups)
    expected = sum(segment.rows for segment in inputs)
    if rows != expected:
        raise SegmentUnfit(f"it has {rows} rows, but the old segments have {expected}")
    if any(before.last > after.first for before, after in pairwise(footer.row_groups)):
        raise SegmentUnfit("its row groups are not sorted")


async def _digest(store: Store, footer: Footer, size: int) -> str:
    """The digest of the whole segment; checks the checksum of each row group on the way."""
    digest = hashlib.sha256()
    read_to = 0
    for row_group in footer.row_groups:
        for start, end in ((read_to, row_group.start), (row_group.start, row_group.end)):
            checksum = 0
            for begin in range(start, end, STEP_BYTES):
                data = await store.get_range(footer.key, begin, min(end, begin + STEP_BYTES))
                checksum = await asyncio.to_thread(_add, digest, data, checksum)
        if checksum != row_group.checksum:
            raise SegmentUnfit(f"the checksum of its row group {row_group.number} does not match")
        read_to = row_group.end
    data = await store.get_range(footer.key, read_to, size)
    await asyncio.to_thread(digest.update, data)
    return f"sha256:{digest.hexdigest()}"


def _add(digest: "hashlib._Hash", data: bytes | memoryview, checksum: int) -> int:
    digest.update(data)
    return crc32(data, checksum)
