"""The decisions on snapshots and trimming."""

from typing import TYPE_CHECKING

from ..commands import PublishSnapshot, Trim
from ..outcomes import Refused, SnapshotPublished, StreamTrimmed
from ..stream.stream import Stream
from .refusals import refused, stored_too_long_ago, trimmed_off

if TYPE_CHECKING:
    from ..state import State


def decide_publish(state: "State", command: PublishSnapshot) -> Stream | SnapshotPublished | Refused:
    """The stream that gets the snapshot, or that is trimmed to the visible one."""
    stream = state.visible(command.bucket, command.stream, command.incarnation)
    if isinstance(stream, Refused):
        return stream
    outcome = _publication(stream, command)
    if outcome is not None:
        return outcome
    return stored_too_long_ago() if state.may_be_collected(command.made_at) else stream


def _publication(stream: Stream, command: PublishSnapshot) -> SnapshotPublished | Refused | None:
    """The outcome of a publication that changes nothing."""
    offset, visible = command.offset, stream.snapshot
    if visible is not None and offset == visible.offset:
        if command.digest != visible.digest:
            return refused("snapshot_conflict", "there is a different snapshot at this offset", stream)
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


def decide_trim(state: "State", command: Trim) -> Stream | StreamTrimmed | Refused:
    """The stream to trim."""
    stream = state.visible(command.bucket, command.stream, command.incarnation)
    if isinstance(stream, Refused):
        return stream
    offset, visible = command.offset, stream.snapshot
    if visible is None:
        return refused("snapshot_conflict", "a stream without a snapshot cannot be trimmed", stream)
    if offset > visible.offset:
        return refused("snapshot_conflict", f"the snapshot only reaches offset {visible.offset}", stream)
    if offset < stream.earliest:
        return refused("snapshot_conflict", f"the stream already begins at {stream.earliest}", stream)
    if offset == stream.earliest:
        return trimmed(stream)
    if command.record is None and not stream.is_boundary(offset):
        return refused("invalid_offset", "no message begins or ends at this offset", stream)
    return stream


def published(stream: Stream, offset: int, digest: str, duplicate: bool = False) -> SnapshotPublished:
    """The outcome for a snapshot that is the visible one."""
    return SnapshotPublished(
        incarnation=stream.incarnation,
        tail=stream.tail,
        closed=stream.closed,
        offset=offset,
        digest=digest,
        duplicate=duplicate,
    )


def trimmed(stream: Stream) -> StreamTrimmed:
    """The outcome for a stream that begins at the requested offset."""
    return StreamTrimmed(stream.incarnation, stream.tail, stream.closed, stream.earliest)
