"""What a node answers before it is part of its cluster: that it is alive, and what it waits for."""

from collections.abc import Callable

import msgspec

from .errors import Problem
from .wire.request import Request


class Joining:
    """Answers requests while the node joins."""

    def __init__(self, waits_for: Callable[[], str], common: str) -> None:
        self._waits_for = waits_for
        self._common = common

    def handle(self, request: Request) -> None:
        """Answer a request: nothing is served yet."""
        if request.path == "/healthz":
            body = msgspec.json.encode({"status": "ok"})
            request.send(200, self._common, [("content-type", "application/json")], body)
            return
        reason = f"this node is joining the cluster, and waits for {self._waits_for()}"
        if request.path.startswith("/readyz"):
            body = msgspec.json.encode({"ready": False, "reason": reason})
            request.send(503, self._common, [("content-type", "application/json")], body)
            return
        problem = Problem("unavailable", reason)
        request.send(problem.status, self._common, problem.answer_headers(), problem.body())
