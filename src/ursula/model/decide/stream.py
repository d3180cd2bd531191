"""The decisions about a stream other than its messages: delete, expire, renew, undelete, attributes."""

from typing import TYPE_CHECKING

from ..commands import Delete, Expire, Renew, SetAttributes, Undelete
from ..deleted import DeletedStream
from ..outcomes import AttributesSet, Ignored, Refused, Renewed
from ..stream.row import read_row
from ..stream.stream import Stream
from ..text.attributes import NO_ATTRIBUTES

if TYPE_CHECKING:
    from ..state import State


def decide_delete(state: "State", command: Delete) -> Stream | Refused:
    """The stream to delete."""
    return state.visible(command.bucket, command.stream, command.incarnation)


def decide_expire(state: "State", command: Expire) -> Stream | Ignored:
    """The stream to end, if it is still the same incarnation and its deadline has not moved."""
    stream = _same(state, command)
    return stream if stream is not None and stream.deadline == command.deadline else Ignored()


def decide_renew(state: "State", command: Renew) -> Stream | Renewed | Ignored:
    """The stream whose deadline moves."""
    stream = _same(state, command)
    if stream is None or stream.ttl_seconds is None:
        return Ignored()
    if stream.deadline_after(command.seen_at) == stream.deadline:
        return Renewed(stream.deadline or 0)
    return stream


def decide_set_attributes(state: "State", command: SetAttributes) -> Stream | AttributesSet | Refused:
    """The stream whose attributes change."""
    stream = state.visible(command.bucket, command.stream, command.incarnation)
    if isinstance(stream, Refused):
        return stream
    if command.attributes == (stream.attributes or NO_ATTRIBUTES):
        return AttributesSet(stream.incarnation)
    return stream


def decide_undelete(state: "State", command: Undelete) -> DeletedStream | Refused:
    """The tombstone of the stream to bring back, or why it cannot come back."""
    name = command.stream
    taken = state.find(command.bucket, name)
    tombstone = state.deleted.find(command.bucket, name, command.incarnation)
    if taken is not None and (
        not taken.hidden or tombstone is None or taken.incarnation != tombstone.incarnation
    ):
        return Refused("stream_exists", f"the name {name!r} is taken", taken.incarnation)
    if tombstone is None:
        return Refused("stream_not_found", f"there is no deleted stream {name!r}")
    parent = read_row(tombstone.row).parent
    if parent is not None and taken is None:
        source = state.find(command.bucket, parent[0])
        if source is None or source.incarnation != parent[1]:
            message = f"it is a fork of {parent[0]!r}, which is deleted too: undelete that first"
            return Refused("stream_not_found", message)
    return tombstone


def _same(state: "State", command: Expire | Renew) -> Stream | None:
    """The stream that the command names, if it is still the same incarnation."""
    stream = state.find(command.bucket, command.stream)
    if stream is None or stream.hidden or stream.incarnation != command.incarnation:
        return None
    return stream
