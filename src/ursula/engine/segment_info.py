"""Conversions between the descriptions of a segment or a state object.

The log and the state have `StoredSegment` and `StoredState` of the model, which are the full descriptions. A
manifest has the same fields as JSON under other names, a live list has the fields that readers outside the
server need, and the reader of segments takes a `SegmentRef`.
"""

from ..cold.segment.reader import SegmentRef
from ..cold.segment.writer import SegmentSummary
from ..cold.state.manifest import LiveSegment, SegmentFacts, StateFacts
from ..model.commands import StoredSegment, StoredState


def segment_from_summary(key: str, first: int, last: int, summary: SegmentSummary) -> StoredSegment:
    """A segment that was just written, with the rows of the positions after `first` up to `last`."""
    return StoredSegment(
        first=first,
        last=last,
        key=key,
        rows=summary.row_count,
        size=summary.size,
        payload_bytes=summary.payload_bytes,
        footer_bytes=summary.footer_bytes,
        footer_crc=summary.footer_crc,
        digest=summary.digest,
    )


def segment_from_facts(facts: SegmentFacts) -> StoredSegment:
    """A segment that a manifest names."""
    return StoredSegment(
        first=facts.first,
        last=facts.last,
        key=facts.path,
        rows=facts.rows,
        size=facts.bytes,
        payload_bytes=facts.payload_bytes,
        footer_bytes=facts.footer_bytes,
        footer_crc=facts.footer_crc,
        digest=facts.digest,
    )


def segment_facts(segment: StoredSegment) -> SegmentFacts:
    """A segment as a manifest names it."""
    return SegmentFacts(
        first=segment.first,
        last=segment.last,
        path=segment.key,
        rows=segment.rows,
        bytes=segment.size,
        payload_bytes=segment.payload_bytes,
        footer_bytes=segment.footer_bytes,
        footer_crc=segment.footer_crc,
        digest=segment.digest,
    )


def live_segment(segment: StoredSegment) -> LiveSegment:
    """A segment as a live list names it."""
    return LiveSegment(
        path=segment.key,
        first=segment.first,
        last=segment.last,
        rows=segment.rows,
        bytes=segment.size,
    )


def segment_ref(segment: StoredSegment) -> SegmentRef:
    """A segment as a reader refers to it."""
    return SegmentRef(
        key=segment.key,
        size=segment.size,
        footer_bytes=segment.footer_bytes,
        footer_crc=segment.footer_crc,
    )


def state_from_facts(facts: StateFacts) -> StoredState:
    """A state object that a manifest names."""
    return StoredState(
        key=facts.path, is_base=facts.base, rows=facts.rows, size=facts.bytes, digest=facts.digest
    )


def state_facts(state: StoredState) -> StateFacts:
    """A state object as a manifest names it."""
    return StateFacts(
        path=state.key, base=state.is_base, rows=state.rows, bytes=state.size, digest=state.digest
    )
