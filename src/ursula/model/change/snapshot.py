"""Publishing snapshots and trimming streams."""

from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..codec import events
from ..commands import PublishSnapshot, Trim
from ..decide.snapshot import published, trimmed
from ..journal import EventKind
from ..outcomes import Snapshot, SnapshotPublished, StreamTrimmed
from ..store_view.store_state import blob_key
from ..stream.stream import Stream
from .store import replace_object, want_object

if TYPE_CHECKING:
    from ..state import State


def change_publish(state: "State", command: PublishSnapshot, stream: Stream, index: int) -> SnapshotPublished:
    """Make the snapshot the visible one, unless it already is, and trim to it if asked."""
    bucket = state.buckets[command.bucket]
    journal = state.enter(bucket)
    state.touch(command.bucket, stream)
    visible = stream.snapshot
    is_visible = visible is not None and visible.offset == command.offset
    if not is_visible:
        show_blob(state, command.blob)
        hide_snapshot(state, stream)
        stream.snapshot = Snapshot(
            offset=command.offset,
            blob=command.blob,
            content_type=command.content_type,
            size=command.size,
            digest=command.digest,
        )
        journal.add(index, EventKind.SNAPSHOT, stream, command.offset, event=events.snapshot(command))
    if command.trim and command.offset > stream.earliest:
        _trim(state, bucket, stream, command, index)
    return published(stream, command.offset, command.digest, duplicate=is_visible)


def change_trim(state: "State", command: Trim, stream: Stream, index: int) -> StreamTrimmed:
    """Move the beginning of a stream."""
    bucket = state.buckets[command.bucket]
    state.enter(bucket)
    state.touch(command.bucket, stream)
    _trim(state, bucket, stream, command, index)
    return trimmed(stream)


def _trim(
    state: "State", bucket: Bucket, stream: Stream, command: Trim | PublishSnapshot, index: int
) -> None:
    record = stream.record_at(command.offset) if command.record is None else command.record
    stream.trim(command.offset, record, state.at)
    state.dropped_at = state.at
    drop_trimmed(state, bucket, stream)
    bucket.journal.add(index, EventKind.TRIM, stream, command.offset, event=events.trim(command))


def drop_trimmed(state: "State", bucket: Bucket, stream: Stream) -> None:
    """Drop some trimmed messages; residency drops the rest step by step."""
    if not stream.drop_trimmed():
        state.residency.note_trimmed(bucket.name, stream.name)


def show_blob(state: "State", blob: str) -> None:
    """Count one more stream whose snapshot is this blob."""
    state.blobs[blob] = state.blobs.get(blob, 0) + 1
    want_object(state, blob_key(blob))


def hide_snapshot(state: "State", stream: Stream) -> None:
    """Remove the snapshot of a stream, and release its blob if no other stream shows it."""
    if stream.snapshot is None:
        return
    blob = stream.snapshot.blob
    stream.snapshot = None
    state.blobs[blob] -= 1
    if not state.blobs[blob]:
        del state.blobs[blob]
        replace_object(state, blob_key(blob))
