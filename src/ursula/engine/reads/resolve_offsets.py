"""What a command must know of old bytes before it is logged.

Whether an offset is a boundary, and how many messages lie before it, is decided by bytes that may be in the
store, where applying a command must not look. So it is found out first and becomes part of the command; it
stays true, since what is written never changes.
"""

from msgspec.structs import replace

from ...model.commands import AnyCommand, Create, ForkedAt, PublishSnapshot, Trim
from ...model.decide.create import resolve_fork
from ...model.outcomes import Refused
from ...model.state import State
from ...model.stream.stream import Stream

NeedsResolving = Create | PublishSnapshot | Trim


def is_unresolved(command: AnyCommand) -> bool:
    """Whether it speaks of old bytes and does not say yet what is there."""
    kind = type(command)
    if kind is PublishSnapshot or kind is Trim:
        return command.record is None  # type: ignore[union-attr]
    if kind is not Create:
        return False
    return command.forked_at is None and command.fork is not None and command.fork.offset is not None  # type: ignore[union-attr]


def resolve(state: State, command: NeedsResolving) -> NeedsResolving | None:
    """The command with what memory knows; itself if it is refused anyway; None if only the store knows."""
    subject = subject_of(state, command)
    if subject is None:
        return command
    stream, offset = subject
    if not stream.holds(offset) and offset != stream.tail:
        # Refused for another reason? Then there is no need to look.
        return command if state.look(as_if_resolved(command, stream)) is not None else None
    if isinstance(command, Create):
        sub_offset = command.fork.sub_offset if command.fork is not None else 0
        place = resolve_fork(stream, offset, sub_offset)
        if isinstance(place, Refused):
            return command
        return replace(command, forked_at=ForkedAt(stream.incarnation, *place))
    if not stream.is_boundary(offset):
        return command
    record = stream.record_at(offset) if stream.is_json else 0
    return replace(command, record=record, incarnation=stream.incarnation)


def subject_of(state: State, command: NeedsResolving) -> tuple[Stream, int] | None:
    """The stream and the offset that a command speaks of; None if there is no such place."""
    if isinstance(command, Create):
        fork = command.fork
        stream = state.find(command.bucket, fork.source) if fork is not None else None
        offset = fork.offset if fork is not None else None
    else:
        stream, offset = state.find(command.bucket, command.stream), command.offset
        if stream is not None and command.incarnation not in (None, stream.incarnation):
            return None
    if stream is None or stream.hidden or offset is None or not stream.earliest <= offset <= stream.tail:
        return None
    return stream, offset


def as_if_resolved(command: NeedsResolving, stream: Stream | None = None) -> NeedsResolving:
    """The command as if all were well with what it says of old bytes: what is it refused for then?"""
    if isinstance(command, Create):
        return replace(command, forked_at=ForkedAt("" if stream is None else stream.incarnation, 0, 0))
    return replace(command, record=0)
