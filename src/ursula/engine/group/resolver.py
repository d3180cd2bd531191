"""Resolves commands that refer to old bytes, from memory or from the store, before they are decided."""

import logging
from typing import Protocol

from ...cold.objects.store import StoreFailed
from ...model.commands import AnyCommand
from ...model.outcomes import AnyOutcome, Refused
from ...model.state import State
from ..background import BackgroundTasks
from ..failures import Failure, Unavailable
from ..reads.cold_stream import ColdReads
from ..reads.resolve_offsets import NeedsResolving, resolve, resolve_from_store
from .batching import Reply

logger = logging.getLogger(__name__)


class Propose(Protocol):
    """`Group.propose`."""

    def __call__(self, command: AnyCommand, done: Reply, size: int, json_problem: str | None) -> None:
        """Have a command decided."""


class Resolver:
    """Resolves the commands of one group, and proposes them again when they are resolved."""

    def __init__(self, state: State, cold: ColdReads | None, propose: Propose) -> None:
        self._state = state
        self._cold = cold
        self._propose = propose
        self._tasks = BackgroundTasks()

    def is_decidable(self, command: NeedsResolving, done: Reply, size: int, json_problem: str | None) -> bool:
        """Whether the command can be decided as it is; if not, it is proposed again once it is resolved."""
        resolved = resolve(self._state, command)
        if resolved is None and self._cold is not None:
            self._tasks.spawn(self._resolve_later(self._cold, command, done, size, json_problem))
            return False
        if resolved is None or resolved is command:
            return True
        self._propose(resolved, done, size, json_problem)
        return False

    async def _resolve_later(
        self, cold: ColdReads, command: NeedsResolving, done: Reply, size: int, json_problem: str | None
    ) -> None:
        """Resolve a command from the store and propose it, or reply with the reason why that failed."""
        has_replied = False

        def reply(outcome: AnyOutcome | Failure) -> None:
            nonlocal has_replied
            has_replied = True
            done(outcome)

        try:
            found = await resolve_from_store(self._state, cold, command)
            if isinstance(found, Refused):
                reply(found)
            else:
                self._propose(found, reply, size, json_problem)
        except StoreFailed as error:
            reply(Unavailable(str(error)))
        except Exception:
            logger.exception("resolving a command failed")
            if not has_replied:
                reply(Unavailable("the server failed; see its log"))
