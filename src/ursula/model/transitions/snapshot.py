"""The decisions on snapshots and trimming. They look and never change anything, like `decide_append`."""

from ..commands import PublishSnapshot, Trim
from ..outcomes import Refused, SnapshotPublished, Trimmed
from ..stream.stream import Stream
from .append import refused


def decide_publish(stream: Stream, command: PublishSnapshot) -> SnapshotPublished | Refused | None:
    """What a publication comes to; None if the snapshot is to become the visible one, or to be trimmed to."""
    offset, visible = command.offset, stream.snapshot
    if visible is not None and offset == visible.offset:
        if command.digest != visible.digest:
            return refused("snapshot_conflict", "there is another snapshot at this offset", stream)
        if command.trim and offset > stream.earliest:
            return None
        return published(stream, offset, visible.digest, duplicate=True)
    if offset < stream.earliest:
        return trimmed_off(stream)
    if offset > stream.tail:
        return refused("snapshot_conflict", f"the stream ends at {stream.tail}", stream)
    if visible is not None and offset < visible.offset:
        return refused("snapshot_conflict", f"there is a newer snapshot, at {visible.offset}", stream)
    if command.record is None and not stream.is_boundary(offset):
        return refused("invalid_offset", "no message begins or ends at this offset", stream)
    return None


def decide_trim(stream: Stream, command: Trim) -> Trimmed | Refused | None:
    """What a trim comes to; None if there is something to drop."""
    offset, visible = command.offset, stream.snapshot
    if visible is None:
        return refused("snapshot_conflict", "a stream without a snapshot is not trimmed", stream)
    if offset > visible.offset:
        return refused("snapshot_conflict", f"the snapshot reaches to {visible.offset} only", stream)
    if offset < stream.earliest:
        return refused("snapshot_conflict", f"the stream already begins at {stream.earliest}", stream)
    if offset == stream.earliest:
        return trimmed(stream)
    if command.record is None and not stream.is_boundary(offset):
        return refused("invalid_offset", "no message begins or ends at this offset", stream)
    return None


def published(stream: Stream, offset: int, digest: str, duplicate: bool = False) -> SnapshotPublished:
    """The outcome for a snapshot that is the visible one."""
    return SnapshotPublished(stream.incarnation, stream.tail, stream.closed, offset, digest, duplicate)


def trimmed(stream: Stream) -> Trimmed:
    """The outcome for a stream that begins where it was asked to."""
    return Trimmed(stream.incarnation, stream.tail, stream.closed, stream.earliest)


def trimmed_off(stream: Stream) -> Refused:
    """What was asked for lies before the earliest byte that is kept."""
    refusal = refused("offset_trimmed", f"the stream begins at {stream.earliest}", stream)
    refusal.earliest = stream.earliest
    return refusal
