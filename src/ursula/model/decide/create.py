"""The decision to create a stream, empty or as a fork, and how a repeated creation is compared."""

from typing import TYPE_CHECKING

from ..bucket import Bucket
from ..commands import Create, ForkPoint
from ..outcomes import Created, Refused
from ..stream.stream import Stream
from ..text.attributes import NO_ATTRIBUTES
from ..text.media_type import DEFAULT, media_type_of
from .append import check_producer, matches, message_count
from .refusals import (
    bucket_not_found,
    incarnation_mismatch,
    precondition_failed,
    stored_too_long_ago,
    stream_not_found,
)

if TYPE_CHECKING:
    from ..state import State


class NewStream:
    """The plan of a new stream: its configuration, and where it branches off if it is a fork."""

    __slots__ = ("content_type", "expires_at", "fork_offset", "fork_record", "parent", "ttl_seconds")

    def __init__(
        self,
        content_type: str,
        ttl_seconds: int | None,
        expires_at: int | None,
        parent: Stream | None,
        fork_offset: int,
        fork_record: int,
    ) -> None:
        self.content_type = content_type
        self.ttl_seconds = ttl_seconds
        self.expires_at = expires_at
        self.parent = parent
        self.fork_offset = fork_offset
        self.fork_record = fork_record


def decide_create(
    state: "State", command: Create, json_problem: str | None = None
) -> NewStream | Created | Refused:
    """The stream to create, or the outcome if none is to be created. `json_problem`: see `decide_append`."""
    bucket = state.buckets.get(command.bucket)
    if bucket is None and not command.make_bucket:
        return bucket_not_found(command.bucket)
    stream = bucket.find(command.stream) if bucket is not None else None
    visible = None if stream is None or stream.hidden else stream
    if command.incarnation is not None and (visible is None or visible.incarnation != command.incarnation):
        return incarnation_mismatch(visible)
    if command.if_match is not None and (visible is None or not matches(visible, command.if_match)):
        return precondition_failed(visible)
    if stream is not None:
        return _existing(stream, command)
    plan = _plan(bucket, command)
    if isinstance(plan, Refused):
        return plan
    if command.producer is not None and (message_count(command) or json_problem is not None):
        problem = check_producer(command.producer, None, None)
        if problem is not None:
            return problem
    if json_problem is not None:
        return Refused("invalid_json", json_problem)
    if command.body is not None and state.may_be_collected(command.body.made_at):
        return stored_too_long_ago()
    return plan


def created(stream: Stream, new: bool, written: int = 0) -> Created:
    """The outcome for a stream that exists as requested; `written` is how many messages the request wrote."""
    outcome = Created(
        new=new,
        incarnation=stream.incarnation,
        content_type=stream.content_type,
        tail=stream.tail,
        closed=stream.closed,
        deadline=stream.deadline,
    )
    if stream.is_json:
        outcome.record_next = stream.next_record
        outcome.record_start = outcome.record_next - written
    return outcome


def _existing(stream: Stream, command: Create) -> Created | Refused:
    if stream.hidden:
        difference: str | None = "it was deleted, and forks still need it"
    else:
        difference = _difference(stream, command)
    if difference is None:
        return created(stream, new=False)
    return Refused(
        "stream_exists",
        f"the stream exists and differs from the request: {difference}",
        stream.incarnation,
        None if stream.hidden else stream.tail,
        not stream.hidden and stream.closed,
    )


def _difference(stream: Stream, command: Create) -> str | None:
    """How the configuration differs from the request, in words; None if it does not."""
    forking = command.fork is not None
    asked = command.content_type or (stream.content_type if forking else DEFAULT)
    if media_type_of(asked) != stream.media_type:
        return f"its content type is {stream.content_type}"
    lifetime = (command.ttl_seconds, command.expires_at)
    if forking and stream.parent is not None and lifetime == (None, None):
        lifetime = (stream.parent.ttl_seconds, stream.parent.expires_at)
    if lifetime != (stream.ttl_seconds, stream.expires_at):
        return "its lifetime is different"
    if command.close != stream.closed:
        return "it is closed" if stream.closed else "it is open"
    if not _same_fork(stream, command.fork):
        return "it was not forked from there" if forking else "it is a fork"
    if command.attributes is not None and command.attributes != (stream.attributes or NO_ATTRIBUTES):
        return "its attributes are different"
    return None


def _same_fork(stream: Stream, asked: ForkPoint | None) -> bool:
    """Whether the stream is the requested fork. A request without an offset matches any fork offset."""
    existing = stream.fork
    if existing is None or asked is None:
        return existing is asked
    if asked.source != existing.source or asked.sub_offset != existing.sub_offset:
        return False
    offset = stream.fork_offset if existing.offset is None else existing.offset
    return asked.offset is None or asked.offset == offset


def _plan(bucket: Bucket | None, command: Create) -> NewStream | Refused:
    point = command.fork
    if point is None:
        return NewStream(
            content_type=command.content_type or DEFAULT,
            ttl_seconds=command.ttl_seconds,
            expires_at=command.expires_at,
            parent=None,
            fork_offset=0,
            fork_record=0,
        )
    source = bucket.find(point.source) if bucket is not None else None
    if source is None:
        return stream_not_found(point.source)
    if source.hidden:
        return Refused("stream_exists", f"the source {point.source!r} was deleted and cannot be forked")
    if command.content_type is not None and media_type_of(command.content_type) != source.media_type:
        return Refused("content_type_mismatch", f"the source has content type {source.content_type}")
    point_found = _find_fork_point(source, command)
    if isinstance(point_found, Refused):
        return point_found
    ttl_seconds, expires_at = command.ttl_seconds, command.expires_at
    if ttl_seconds is None and expires_at is None:
        ttl_seconds, expires_at = source.ttl_seconds, source.expires_at
    offset, record = point_found
    return NewStream(
        content_type=command.content_type or source.content_type,
        ttl_seconds=ttl_seconds,
        expires_at=expires_at,
        parent=source,
        fork_offset=offset,
        fork_record=record,
    )


def _find_fork_point(source: Stream, command: Create) -> tuple[int, int] | Refused:
    """Where a fork branches off its source: the offset, and how many messages precede it."""
    point, known = command.fork, command.forked_at
    offset = source.tail if point is None or point.offset is None else point.offset
    if offset > source.tail:
        return Refused("offset_beyond_tail", f"the source ends at {source.tail}", tail=source.tail)
    if offset < source.earliest:
        return Refused("offset_trimmed", f"the source begins at {source.earliest}", earliest=source.earliest)
    if known is not None:
        if known.incarnation != source.incarnation:
            return Refused("stream_not_found", "the source was deleted and created again in the meantime")
        return known.offset, known.record
    return resolve_fork(source, offset, 0 if point is None else point.sub_offset)


def resolve_fork(source: Stream, offset: int, sub_offset: int) -> tuple[int, int] | Refused:
    """The offset of a fork, and how many messages precede it, if the bytes there are in memory.

    If they are not, the engine resolves the fork from the store before it logs the command (`ForkedAt`).
    """
    if offset == source.tail and sub_offset == 0:
        return offset, source.next_record
    if source.is_json and not source.is_boundary(offset):
        return inside_message()
    exact = offset if sub_offset == 0 else source.sub_offset(offset, sub_offset)
    if exact is None:
        return beyond_append()
    return exact, source.record_at(exact)


def inside_message() -> Refused:
    """A JSON stream cannot be forked inside a message."""
    return Refused("invalid_offset", "the fork offset is inside a JSON message")


def beyond_append() -> Refused:
    """A sub-offset cannot reach into the next append."""
    return Refused("invalid_offset", "the sub-offset is beyond the append at the fork offset")
