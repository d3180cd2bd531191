"""What long-poll and SSE have in common: a connection that waits for a stream, and everyone who does."""

import asyncio
from collections import Counter
from typing import Protocol

from ...engine.interface import GroupApi
from ..exchange import Exchange


class LiveConnection(Protocol):
    """A connection that waits for something new."""

    kind: str

    def end(self) -> None:
        """Bring it to an end that its client can go on from."""
        ...


class LiveConnections:
    """All of them."""

    def __init__(self) -> None:
        self.stopping = False
        self._connections: set[LiveConnection] = set()

    def add(self, connection: LiveConnection) -> None:
        """One more."""
        self._connections.add(connection)

    def discard(self, connection: LiveConnection) -> None:
        """One that has ended."""
        self._connections.discard(connection)

    def count_by_kind(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter(connection.kind for connection in self._connections)

    def end(self) -> None:
        """The server stops: bring all to an end, and whoever comes later too."""
        self.stopping = True
        for connection in tuple(self._connections):
            connection.end()


class Waiting:
    """A request that waits: for its stream, for a moment, or for its client to go away."""

    kind = "long_poll"

    def __init__(self, exchange: Exchange, group: GroupApi, watched: str) -> None:
        self.exchange = exchange
        self.group = group
        self.watched = watched
        self.over = False
        self._timer: asyncio.TimerHandle | None = None
        exchange.request.on_gone = self.stop
        exchange.services.live.add(self)

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
        """Wait no more, and drop everything that would call back."""
        if self.over:
            return
        self.over = True
        self.exchange.services.live.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.exchange.request.on_gone = None
