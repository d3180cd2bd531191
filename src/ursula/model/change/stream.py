"""Ending streams, bringing them back, and changing their deadlines and attributes."""

from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..codec import events
from ..commands import Delete, Expire, Renew, SetAttributes, Undelete
from ..deleted import DeletedStream
from ..journal import EventKind
from ..outcomes import AttributesSet, Ended, Renewed, Undeleted
from ..store_view.dirty_rows import RowKind
from ..stream.row import decode_stream, read_row
from ..stream.stream import Stream
from ..text.attributes import NO_ATTRIBUTES
from .bucket import add_bucket
from .snapshot import drop_trimmed, hide_snapshot, show_blob

if TYPE_CHECKING:
    from ..state import State


def change_delete(state: "State", command: Delete, stream: Stream, index: int) -> Ended:
    """Remove a stream; while forks need it, it is only hidden."""
    return _end(state, command.bucket, stream, EventKind.DELETE, index)


def change_expire(state: "State", command: Expire, stream: Stream, index: int) -> Ended:
    """Remove a stream whose deadline has passed, just as if it were deleted."""
    return _end(state, command.bucket, stream, EventKind.EXPIRE, index)


def change_renew(state: "State", command: Renew, stream: Stream, index: int) -> Renewed:
    """Move the deadline of a stream."""
    state.touch(command.bucket, stream)
    stream.renew(command.seen_at)
    return Renewed(stream.deadline or 0)


def change_set_attributes(
    state: "State", command: SetAttributes, stream: Stream, index: int
) -> AttributesSet:
    """Replace the attributes of a stream."""
    journal = state.enter(state.buckets[command.bucket])
    state.touch(command.bucket, stream)
    stream.attributes = None if command.attributes == NO_ATTRIBUTES else command.attributes
    event = events.attributes(command.attributes)
    journal.add(index, EventKind.ATTRIBUTES, stream, stream.tail, event=event)
    return AttributesSet(stream.incarnation)


def change_undelete(state: "State", command: Undelete, tombstone: DeletedStream, index: int) -> Undeleted:
    """Bring a stream back as it was."""
    bucket = state.buckets.get(command.bucket) or add_bucket(state, command.bucket)
    state.dirty_rows.note((RowKind.STREAM, command.bucket, command.stream))
    state.dirty_rows.note((RowKind.GRAVE, command.bucket, command.stream))
    state.deleted.remove(tombstone)
    stream = _revive(state, bucket, command.stream, tombstone)
    if stream.snapshot is not None:
        show_blob(state, stream.snapshot.blob)
    if stream.expires_at is not None and stream.expires_at <= state.at:
        stream.expires_at = stream.deadline = None
    stream.renew(state.at)
    bucket.names.add(stream.name)
    bucket.hidden.pop(stream.name, None)
    state.enter(bucket).add(index, EventKind.UNDELETE, stream, stream.tail)
    return Undeleted(stream.incarnation, stream.tail, stream.closed, stream.deadline)


def _revive(state: "State", bucket: Bucket, name: str, tombstone: DeletedStream) -> Stream:
    """The stream as it was: the hidden one if forks still need it, otherwise one decoded from its row."""
    stream = decode_stream(name, tombstone.row)
    kept = bucket.streams.get(name)
    if kept is not None:
        kept.hidden, kept.snapshot, kept.deadline = False, stream.snapshot, stream.deadline
        kept.dirty_at = state.position
        return kept
    stream.dirty_at = state.position
    if tombstone.stream is not None:  # messages that the store does not have yet
        stream.messages, stream.record_base = tombstone.stream.messages, tombstone.stream.record_base
    parent = read_row(tombstone.row).parent
    source = bucket.find(parent[0]) if parent is not None else None
    if source is not None:
        state.touch(bucket.name, source)
        stream.parent = source
        source.fork_count += 1
    bucket.streams[name] = stream
    state.stream_count += 1
    return stream


def _end(state: "State", bucket_name: str, stream: Stream, kind: EventKind, index: int) -> Ended:
    bucket = state.buckets[bucket_name]
    state.enter(bucket).add(index, kind, stream, stream.tail)
    state.touch(bucket_name, stream)
    state.dirty_rows.note((RowKind.GRAVE, bucket_name, stream.name))
    state.deleted.add(DeletedStream.of_stream(bucket_name, stream, state.at))
    state.dropped_at = state.at
    stream.hidden = True
    stream.deadline = None
    bucket.names.remove(stream.name)
    bucket.hidden[stream.name] = None
    hide_snapshot(state, stream)
    _release(state, bucket, stream)
    return Ended(stream.incarnation)


def _release(state: "State", bucket: Bucket, stream: Stream) -> None:
    """Remove a hidden stream that no fork needs any more, and then its source if the same applies to it."""
    ended: Stream | None = stream
    while ended is not None and ended.hidden and ended.fork_count == 0:
        state.touch(bucket.name, ended)
        del bucket.streams[ended.name]
        del bucket.hidden[ended.name]
        state.residency.forget(ended)
        state.stream_count -= 1
        parent = ended.parent
        if parent is not None:
            parent.fork_count -= 1
            drop_trimmed(state, bucket, parent)
        ended = parent
