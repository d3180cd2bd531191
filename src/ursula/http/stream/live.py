"""What long-poll and SSE have in common: a connection that waits for a stream, and everyone who does."""

import asyncio
from typing import Protocol

from ...engine.group import Group
from ..exchange import Exchange


class Ending(Protocol):
    """A live connection."""

    kind: str

    def end(self) -> None:
        """Bring it to an end that its client can go on from."""
        ...


class Waiting:
    """A request that waits: for its stream, for a moment, or for its client to go away."""

    kind = "long_poll"

    def __init__(self, exchange: Exchange, group: Group, incarnation: str) -> None:
        self.exchange = exchange
        self.group = group
        self.incarnation = incarnation
        self.over = False
        self._timer: asyncio.TimerHandle | None = None
        exchange.request.on_gone = self.stop
        exchange.app.live.add(self)

    def wake_in(self, seconds: float) -> None:
        """Have `tick` called later, and only then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.tick)

    def tick(self) -> None:
        """The moment has come."""
        raise NotImplementedError

    def end(self) -> None:
        """The server stops."""
        raise NotImplementedError

    def stop(self) -> None:
        """Wait no more, and let go of everything that would call back."""
        if self.over:
            return
        self.over = True
        self.exchange.app.live.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.exchange.request.on_gone = None
