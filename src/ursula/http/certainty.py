"""How certain it is that a read shows everything, and for how long a read waits for that."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from ..engine.failures import NotCurrent
from ..engine.interface import NodeApi

CERTAIN_SECONDS_MAX = 2.0
"""How long a read waits until its response is certain; then it has to do without, or fails."""

CONTACT_SECONDS_MAX = 2.0
ASK_SECONDS = 0.5


async def in_time(waiting: Coroutine[Any, Any, None]) -> None:
    """Wait until a read is certain, but not for long; raises NotCurrent."""
    try:
        async with asyncio.timeout(CERTAIN_SECONDS_MAX):
            await waiting
    except TimeoutError:
        raise NotCurrent("the log has not answered in time") from None


class Contact:
    """A node's contact with the log, if it answers reads from its own state (`http.reads = "local"`).

    The node asks for the tail now and then instead of at every read. It is in contact while everything that
    was acknowledged anywhere `CONTACT_SECONDS_MAX` ago is certainly applied here. A log that answers is not
    enough for that: this node may be behind it.
    """

    def __init__(self, node: NodeApi) -> None:
        self._node = node
        self._current_at: float | None = None

    @property
    def problem(self) -> str | None:
        """Why this node must not say that a client has everything; None while it is in contact."""
        if self._current_at is None:
            return "this node has not been in contact with the log yet"
        age = time.monotonic() - self._current_at
        return (
            None if age < CONTACT_SECONDS_MAX else f"this node was last in step with the log {age:.0f} s ago"
        )

    async def run(self) -> None:
        """Ask for the tail now and then, and wait until it is applied, until cancelled."""
        while True:
            asked_at = time.monotonic()
            try:
                await self._node.current()
            except NotCurrent:
                pass
            else:
                self._current_at = asked_at
            await asyncio.sleep(ASK_SECONDS)
