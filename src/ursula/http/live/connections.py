"""What long-poll and SSE have in common: a request that waits, and the set of all such requests."""

import asyncio
from collections import Counter
from typing import Protocol

from ...engine.interface import GroupApi
from ..exchange import Exchange


class LiveConnection(Protocol):
    """A connection whose request waits for something new."""

    kind: str

    def on_shutdown(self) -> None:
        """End the response in a way that lets the client continue elsewhere."""
        ...


class LiveConnections:
    """All connections whose requests wait."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._connections: set[LiveConnection] = set()

    def add(self, connection: LiveConnection) -> None:
        """Add a connection whose request begins to wait."""
        self._connections.add(connection)

    def discard(self, connection: LiveConnection) -> None:
        """Remove a connection whose request no longer waits."""
        self._connections.discard(connection)

    def count_by_kind(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter(connection.kind for connection in self._connections)

    def shut_down(self) -> None:
        """The server is stopping: end all of them. Later requests see `is_stopping` and do not wait."""
        self.is_stopping = True
        self.end_all()

    def end_all(self) -> None:
        """End all of them; their clients come back."""
        for connection in tuple(self._connections):
            connection.on_shutdown()


class LiveRequest:
    """A request that waits: for a change, for a timer, or for its client to disconnect."""

    kind = "long_poll"

    def __init__(self, exchange: Exchange, group: GroupApi, watched: str) -> None:
        self.exchange = exchange
        self.group = group
        self.watched = watched
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None
        exchange.request.on_gone = self.stop
        exchange.services.live.add(self)

    def set_timer(self, seconds: float) -> None:
        """Have `on_timer` called later. There is one timer: this replaces it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.on_timer)

    def on_timer(self) -> None:
        """The timer has fired."""
        raise NotImplementedError

    def on_shutdown(self) -> None:
        """The server is stopping."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop waiting, and drop everything that would call back."""
        if self.is_over:
            return
        self.is_over = True
        self.exchange.services.live.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.exchange.request.on_gone = None
