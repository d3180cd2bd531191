"""The entry point of every request, which is routed, checked and handed to its handler."""

from collections.abc import Callable

from .certainty import Contact
from .errors import Problem
from .exchange import Exchange
from .routes import APPEND, Match, resolve
from .services import Services
from .stream.fast_append import AppendPlan, append_fast, plan_append
from .syntax.headers import take_headers
from .wire.request import Request

HeadMemo = tuple[Match, AppendPlan | None]
"""Everything that depends on the head alone. It is kept with the head, since clients repeat their heads."""

Before = Callable[[Request, Match], Problem | None]
"""A check of every request before anything else happens; a problem becomes the response."""


class App:
    """The HTTP side of a node."""

    def __init__(self, services: Services, before: Before | None = None) -> None:
        self._services = services
        self._before = before
        self.failure: str | None = None

    @property
    def contact(self) -> Contact | None:
        """The contact with the log that must be kept, if reads are answered from the node's own state."""
        return self._services.contact

    def handle(self, request: Request) -> None:
        """Answer a request, now or later from a callback. Its body may still be arriving."""
        memo = request.head.memo
        if memo is None:
            memo = request.head.memo = _resolve(request)
        match, plan = memo
        services = self._services
        refusal = None if self._before is None else self._before(request, match)
        is_serving = services.node.recovered and self.failure is None and refusal is None
        if plan is not None and is_serving and append_fast(services, request, plan):
            return
        exchange = self._exchange(request, match)
        try:
            if refusal is not None:
                raise refusal
            self._answer(exchange, match)
        except Exception as error:
            exchange.reply_error(error)

    def _exchange(self, request: Request, match: Match) -> Exchange:
        lines = self._services.cors.lines_at(request.path, request.headers.first("origin"))
        return Exchange(self._services, request, match.route.label, match.target, lines)

    def _answer(self, exchange: Exchange, match: Match) -> None:
        route, node = match.route, self._services.node
        if self.failure is not None:
            raise Problem("unavailable", self.failure)
        if not node.recovered and not route.during_replay:
            progress = round(node.progress, 4)
            raise Problem("unavailable", f"{node.busy_with}: {progress:.0%}", progress=progress)
        if match.problem is not None:
            exchange.reply_problem(match.problem)
            return
        if match.target.bucket:
            exchange.headers = take_headers(exchange.request.headers)
        answering = route.handler(exchange)
        if answering is not None:
            exchange.spawn(answering)

    def end_waiting(self) -> None:
        """End every live connection; their clients come back, and may wait again."""
        self._services.live.end_all()

    def end_live(self, failure: BaseException | None = None) -> None:
        """End every live connection in a way that lets its client continue elsewhere.

        After a failure of the node, every later request is answered with that failure.
        """
        if failure is not None:
            self.failure = f"the server is stopping: {failure}"
        self._services.live.shut_down()


def _resolve(request: Request) -> HeadMemo:
    match = resolve(request.method, request.path)
    return match, plan_append(request.headers, match.target) if match.route is APPEND else None
