"""Small bodies are asked for in Granian's own thread, before the event loop hears of their request.

So the loop is woken once for an append, when its body has come, and not twice. A body that does not come at
once does not keep its request from the loop, where it counts like any other from then on.
"""

from asyncio import AbstractEventLoop
from functools import partial
from typing import Generic, Protocol, TypeVar

from .rsgi import Future, Headers, Protocol_, Watcher

DIGITS_MAX = 4
"""A body is small if so many digits tell its length: what comes before it is counted must not be much."""
LATE_SECONDS = 0.5


class Request(Protocol):
    """What must be known of a request to ask for its body."""

    method: str
    raw_headers: Headers
    proto: Protocol_
    body_length: int
    body_future: Future | None


R = TypeVar("R", bound=Request)


class Handler(Protocol[R]):
    """Who answers requests: `receive` is called in a thread of Granian's, `handle` on the loop."""

    def receive(self, watcher: Watcher, /) -> R: ...
    def handle(self, request: R, /) -> None: ...


class SmallBodies(Generic[R]):
    """Hands requests to the event loop, those with a small body together with it."""

    def __init__(self, loop: AbstractEventLoop, handler: Handler[R]) -> None:
        self._loop = loop
        self._receive = handler.receive
        self._handle = handler.handle
        self._awaited: dict[R, Future] = {}
        self._seen: list[R] = []
        self._look()

    def schedule(self, watcher: Watcher) -> None:
        """Have a request handled on the loop. Called in a thread of Granian's."""
        request = self._receive(watcher)
        if request.method == "POST":
            length = request.raw_headers.get("content-length")
            if length is not None and length != "0" and len(length) <= DIGITS_MAX:
                request.body_length = int(length)
                self._awaited[request] = future = request.proto()
                future.add_done_callback(partial(self._arrived, request))
                return
        self._loop.call_soon_threadsafe(self._handle, request)

    def _arrived(self, request: R, future: Future) -> None:
        if self._awaited.pop(request, None) is not None:
            request.body_future = future
            self._handle(request)

    def _look(self) -> None:
        """Hand on the requests whose bodies were missing at the last look, and still are."""
        for request in self._seen:
            future = self._awaited.pop(request, None)
            if future is not None:
                request.body_future = future
                self._handle(request)
        self._seen = list(self._awaited)
        self._loop.call_later(LATE_SECONDS, self._look)
