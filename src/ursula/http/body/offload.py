"""Large bodies: stored as blobs before they are logged, to keep them out of the log and of memory.

The logged command names the blob. If the command would be refused, nothing is stored; if it is refused after
all, the blob is removed; if the outcome is unknown, the blob is left to garbage collection.
"""

from msgspec.structs import replace

from ...cold.blobs import made_at
from ...cold.objects.store import StoreFailed
from ...engine.failures import Failure, OutcomeUnknown
from ...model.commands import Append, Body, Create
from ...model.limits import BODY_BYTES_HELD_MAX
from ...model.outcomes import AnyOutcome, Appended, Created, Refused
from ..errors import Problem
from ..exchange import Exchange

_NOT_STORED_YET = "the body is not stored yet"
"""Passed as the JSON problem of a command: such a command is never logged, and this is the last refusal that
the model considers, so that a refusal with this message means that nothing else is wrong."""

_NO_INCARNATION = "new"


def is_large(command: Append | Create, size: int, json_problem: str | None) -> bool:
    """Whether the body of a command goes to the store before the command is logged."""
    return size > BODY_BYTES_HELD_MAX and json_problem is None and bool(command.messages)


async def propose(
    exchange: Exchange, command: Append | Create, size: int, json_problem: str | None
) -> AnyOutcome | Failure:
    """Propose an append or a creation with a body of this size: see `Group.propose`."""
    if not is_large(command, size, json_problem):
        return await exchange.group.propose_and_wait(command, size, json_problem)
    outcome = await exchange.group.propose_and_wait(command, 0, _NOT_STORED_YET)
    if isinstance(outcome, Refused) and outcome.message is _NOT_STORED_YET:
        return await _store_then_propose(exchange, command)
    return outcome


async def _store_then_propose(exchange: Exchange, command: Append | Create) -> AnyOutcome | Failure:
    node, group = exchange.services.node, exchange.group
    found = group.describe(command.bucket, command.stream)
    incarnation = _NO_INCARNATION if isinstance(found, Refused) else found.incarnation
    key = node.blobs.new_key(command.bucket, incarnation)
    try:
        checksums = await node.blobs.put(key, command.messages)
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the body could not be stored: {error}") from error
    body = Body(key, tuple(map(len, command.messages)), made_at(key), checksums)
    outcome = await group.propose_and_wait(replace(command, messages=(), body=body))
    if not _is_stored(outcome) and not isinstance(outcome, OutcomeUnknown):
        node.forget_blob(key)
    return outcome


def _is_stored(outcome: AnyOutcome | Failure) -> bool:
    """Whether the body is now part of a stream."""
    return (isinstance(outcome, Appended) and not outcome.duplicate) or (
        isinstance(outcome, Created) and outcome.new
    )
