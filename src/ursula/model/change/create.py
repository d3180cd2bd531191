"""Creating a stream, empty or as a fork, with its first messages."""

from typing import TYPE_CHECKING

from ..codec import events
from ..commands import Create
from ..decide.append import message_count
from ..decide.create import NewStream, created
from ..journal import EventKind
from ..outcomes import Created
from ..store_view.dirty_rows import RowKind
from ..stream.stream import Stream
from ..text.attributes import NO_ATTRIBUTES
from .append import close, write
from .bucket import add_bucket

if TYPE_CHECKING:
    from ..state import State


def change_create(state: "State", command: Create, plan: NewStream, index: int) -> Created:
    """Create the stream."""
    bucket = state.buckets.get(command.bucket) or add_bucket(state, command.bucket)
    state.dirty_rows.note((RowKind.STREAM, command.bucket, command.stream))
    incarnation = f"{state.group}-{state.position}-{index}"
    stream = Stream(command.stream, incarnation, plan.content_type, state.at)
    stream.dirty_at = state.position
    stream.set_lifetime(plan.ttl_seconds, plan.expires_at, state.at)
    if plan.parent is not None:
        stream.fork = command.fork
        state.touch(command.bucket, plan.parent)
        stream.branch_from(plan.parent, plan.fork_offset, plan.fork_record)
        if stream.snapshot is not None:
            state.blobs[stream.snapshot.blob] += 1
    if command.attributes is not None and command.attributes != NO_ATTRIBUTES:
        stream.attributes = command.attributes
    bucket.streams[command.stream] = stream
    bucket.names.add(command.stream)
    state.stream_count += 1
    kind = EventKind.CREATE if plan.parent is None else EventKind.FORK
    journal = state.enter(bucket)
    journal.add(index, kind, stream, stream.tail, event=events.creation(command, stream))
    written = message_count(command)
    if written:
        if command.body is not None:
            state.stored.bodies.append((state.position, command.body.blob))
        state.refer(stream)
        write(bucket, stream, command, index, state.at)
    if command.close:
        close(bucket, stream, command, index)
    return created(stream, new=True, written=written)
