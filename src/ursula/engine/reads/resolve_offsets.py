"""Resolving: finding the facts about old bytes that a command needs before it is logged.

Whether an offset is a boundary, and how many messages precede it, depends on bytes that may be in the store,
and applying a command must not read the store. So these facts are found first and become part of the command.
They stay true, since written bytes never change.
"""

from msgspec.structs import replace

from ...model.commands import AnyCommand, Create, ForkedAt, PublishSnapshot, Trim
from ...model.decide.create import beyond_append, inside_message, resolve_fork
from ...model.decide.refusals import refused
from ...model.outcomes import Refused
from ...model.state import State
from ...model.stream.stream import Stream
from .cold_stream import BETWEEN, ColdReads, RangeReplaced

NeedsResolving = Create | PublishSnapshot | Trim


def is_unresolved(command: AnyCommand) -> bool:
    """Whether the command refers to old bytes and does not have the facts about them yet."""
    kind = type(command)
    if kind is PublishSnapshot or kind is Trim:
        return command.record is None  # type: ignore[union-attr]
    if kind is not Create:
        return False
    return command.forked_at is None and command.fork is not None and command.fork.offset is not None  # type: ignore[union-attr]


def resolve(state: State, command: NeedsResolving) -> NeedsResolving | None:
    """The command, resolved from memory; itself if it is refused anyway; None if only the store knows."""
    subject = subject_of(state, command)
    if subject is None:
        return command
    stream, offset = subject
    if not stream.holds(offset) and offset != stream.tail:
        # If it is refused for another reason, there is no need to read the store.
        return command if state.look(as_if_resolved(command, stream)) is not None else None
    if isinstance(command, Create):
        sub_offset = command.fork.sub_offset if command.fork is not None else 0
        found = resolve_fork(stream, offset, sub_offset)
        if isinstance(found, Refused):
            return command
        return replace(command, forked_at=ForkedAt(stream.incarnation, *found))
    if not stream.is_boundary(offset):
        return command
    record = stream.record_at(offset) if stream.is_json else 0
    return replace(command, record=record, incarnation=stream.incarnation)


async def resolve_from_store(
    state: State, cold: ColdReads, command: NeedsResolving
) -> NeedsResolving | Refused:
    """The command, resolved from the store, or why it is refused."""
    subject = subject_of(state, command)
    if subject is None:
        return command  # the stream is gone by now, so the state is enough to refuse the command
    stream, offset = subject
    try:
        record = await cold.record_at(command.bucket, stream, offset)
        if isinstance(command, Create):
            return await _resolve_fork(cold, command, stream, offset, record)
        if record is None:
            return refused("invalid_offset", "no message begins or ends at this offset", stream)
        return replace(command, record=record, incarnation=stream.incarnation)
    except RangeReplaced:
        return refused("unavailable", BETWEEN, stream)


async def _resolve_fork(
    cold: ColdReads, command: Create, stream: Stream, offset: int, record: int | None
) -> Create | Refused:
    if record is None and stream.is_json:
        return inside_message()
    count = command.fork.sub_offset if command.fork is not None else 0
    exact = await cold.sub_offset(command.bucket, stream, offset, count) if count else offset
    if exact is None:
        return beyond_append()
    if stream.is_json and exact != offset:
        record = await cold.record_at(command.bucket, stream, exact)
    return replace(command, forked_at=ForkedAt(stream.incarnation, exact, record or 0))


def subject_of(state: State, command: NeedsResolving) -> tuple[Stream, int] | None:
    """The stream and the offset that a command refers to; None if there is no such place."""
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
    """The command as if its facts about old bytes were right, to find out whether it is refused anyway."""
    if isinstance(command, Create):
        return replace(command, forked_at=ForkedAt("" if stream is None else stream.incarnation, 0, 0))
    return replace(command, record=0)
