"""What a node answers before it has joined its cluster: what it waits for, and how etcd is."""

from collections.abc import Callable

import msgspec

from ..engine.interface import ClusterApi
from .cluster.status import status_before_joining
from .errors import Problem
from .observe.prometheus import HEADERS as METRICS_HEADERS
from .observe.prometheus import metrics_before_joining
from .syntax.cors import CorsPolicy
from .wire.headers import HeaderList
from .wire.request import Request
from .wire.server import WireServer

_JSON: HeaderList = [("content-type", "application/json"), ("cache-control", "no-store")]
_READS = frozenset(("GET", "HEAD"))

Answer = tuple[int, HeaderList, bytes]
"""The status, headers and body of a response."""


class NotJoined:
    """Answers requests while the node joins: operators learn how it is, and nobody else gets anything."""

    def __init__(self, node_id: int, cluster: ClusterApi, wire: WireServer, cors: CorsPolicy) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._wire = wire
        self._cors = cors
        self._answers: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: _json(200, {"status": "ok"}),
            "/readyz/local": self._readiness,
            "/readyz/cluster": self._readiness,
            "/cluster/status": self._status,
            "/metrics": self._metrics,
        }

    def handle(self, request: Request) -> None:
        """Answer a request."""
        answer = self._answers.get(request.path) if request.method in _READS else None
        status, headers, body = self._unavailable() if answer is None else answer()
        lines = self._cors.lines_at(request.path, request.headers.first("origin"))
        request.send(status, lines, headers, body)

    @property
    def _reason(self) -> str:
        return f"this node is joining the cluster, and waits for {self._cluster.waits_for}"

    def _readiness(self) -> Answer:
        return _json(503, {"ready": False, "reason": self._reason})

    def _status(self) -> Answer:
        return _json(200, status_before_joining(self._node_id, self._cluster, self._reason))

    def _metrics(self) -> Answer:
        return 200, METRICS_HEADERS, metrics_before_joining(self._cluster, self._wire)

    def _unavailable(self) -> Answer:
        problem = Problem("unavailable", self._reason)
        return problem.status, problem.answer_headers(), problem.body()


def _json(status: int, answer: object) -> Answer:
    return status, _JSON, msgspec.json.encode(answer)
