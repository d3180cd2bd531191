"""Small bodies are asked for in Granian's own thread, before the event loop hears of their request.

So the loop is woken once for an append, when its body has come, and not twice. A body that does not come at
once does not keep its request from the loop, where it counts like any other from then on.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial

from .rsgi import Future, Watcher

DIGITS_MAX = 4
"""A body is small if so many digits tell its length: what comes before it is counted must not be much."""
LATE_SECONDS = 0.5

Handle = Callable[[Watcher, Future | None], None]


class SmallBodies:
    """Hands requests to the event loop, those with a small body together with it."""

    def __init__(self, loop: AbstractEventLoop, handle: Handle) -> None:
        self._loop = loop
        self._handle = handle
        self._awaited: dict[Watcher, Future] = {}
        self._seen: list[Watcher] = []
        self._look()

    def schedule(self, watcher: Watcher) -> None:
        """Have a request handled on the loop.

        Called in a thread of Granian's, while the loop waits for the interpreter: so it does next to nothing.
        """
        scope = watcher.scope
        if scope.method == "POST":
            length = scope.headers.get("content-length")
            if length is not None and length != "0" and len(length) <= DIGITS_MAX:
                self._awaited[watcher] = future = watcher.proto()
                future.add_done_callback(partial(self._arrived, watcher))
                return
        self._loop.call_soon_threadsafe(self._handle, watcher, None)

    def _arrived(self, watcher: Watcher, future: Future) -> None:
        if self._awaited.pop(watcher, None) is not None:
            self._handle(watcher, future)

    def _look(self) -> None:
        """Hand on the requests whose bodies were missing at the last look, and still are."""
        for watcher in self._seen:
            future = self._awaited.pop(watcher, None)
            if future is not None:
                self._handle(watcher, future)
        self._seen = list(self._awaited)
        self._loop.call_later(LATE_SECONDS, self._look)
