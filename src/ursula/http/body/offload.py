"""Large bodies: stored before they are logged, so that neither log nor memory has to hold them.

The command that is logged names the blob. What would be refused is not stored, and what was stored for
nothing is forgotten; if nobody knows what became of the command, the blob stays for the collector.
"""

from msgspec.structs import replace

from ...cold.blobs import made_at
from ...cold.store import StoreFailed
from ...engine.failures import Failure, OutcomeUnknown
from ...engine.gathering import Done
from ...engine.group import Group
from ...model.commands import Append, Body, Create
from ...model.limits import BODY_BYTES_HELD_MAX
from ...model.outcomes import AnyOutcome, Appended, Created, Refused
from ..errors import Problem
from ..exchange import Exchange

Answer = AnyOutcome | Failure

_NOT_YET = "the body is not stored yet"
"""Given as the reason why a body has no messages: such a command is never logged, and refused last of all."""

_NO_INCARNATION = "new"


def propose(
    exchange: Exchange, command: Append | Create, done: Done, size: int, unsplit: str | None = None
) -> None:
    """Have an append or a creation with a body of this size decided: see `Group.propose`."""
    group = exchange.app.node.group_of(command.bucket)
    if size <= BODY_BYTES_HELD_MAX or unsplit is not None or not command.messages:
        group.propose(command, done, size, unsplit)
        return

    def on_look(outcome: Answer) -> None:
        if isinstance(outcome, Refused) and outcome.message is _NOT_YET:
            exchange.app.spawn(exchange, _store_first(exchange, group, command, done))
        else:
            done(outcome)

    group.propose(command, on_look, 0, _NOT_YET)


async def _store_first(exchange: Exchange, group: Group, command: Append | Create, done: Done) -> None:
    node = exchange.app.node
    found = group.describe(command.bucket, command.stream)
    incarnation = _NO_INCARNATION if isinstance(found, Refused) else found.incarnation
    key = node.blobs.new_key(command.bucket, incarnation)
    try:
        checksums = await node.blobs.put(key, command.messages)
    except StoreFailed as error:
        raise Problem("store_unavailable", f"the body could not be stored: {error}") from error
    body = Body(key, tuple(map(len, command.messages)), made_at(key), checksums)

    def on_outcome(outcome: Answer) -> None:
        if not _is_stored(outcome) and not isinstance(outcome, OutcomeUnknown):
            node.forget_blob(key)
        done(outcome)

    group.propose(replace(command, messages=(), body=body), on_outcome)


def _is_stored(outcome: Answer) -> bool:
    """Whether something shows the body now."""
    return (isinstance(outcome, Appended) and not outcome.duplicate) or (
        isinstance(outcome, Created) and outcome.new
    )
