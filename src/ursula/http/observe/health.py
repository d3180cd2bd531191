"""Whether the process lives, and whether it is ready: answered also while the log is replayed."""

from collections.abc import Callable

import msgspec

from ..cluster.status import get_status
from ..exchange import Exchange
from .metrics import get_metrics

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def healthz(exchange: Exchange) -> None:
    """The process lives."""
    exchange.send(200, _JSON, b'{"status":"ok"}')


def readyz_local(exchange: Exchange) -> None:
    """This node has recovered and takes requests, writes included."""
    _send_readiness(exchange)


def readyz_cluster(exchange: Exchange) -> None:
    """The cluster takes requests: this node does, it knows its members, and every group has a leader.

    A single node is its only member and leads, so that it is ready when it is ready by itself.
    """
    _send_readiness(exchange)


def _send_readiness(exchange: Exchange) -> None:
    node = exchange.app.node
    answer: dict[str, object] = {"ready": False}
    if exchange.app.stopping:
        answer["reason"] = "the server is stopping"
    elif not node.recovered:
        answer |= {"reason": node.busy_with, "progress": round(node.progress, 4)}
    elif node.log_problem is not None:
        answer["reason"] = f"the log does not take entries: {node.log_problem}"
    else:
        answer["ready"] = True
    exchange.send(200 if answer["ready"] else 503, _JSON, msgspec.json.encode(answer))


ROUTES: dict[str, dict[str, Callable[[Exchange], None]]] = {
    "/healthz": {"GET": healthz, "HEAD": healthz},
    "/readyz/local": {"GET": readyz_local, "HEAD": readyz_local},
    "/readyz/cluster": {"GET": readyz_cluster, "HEAD": readyz_cluster},
    "/metrics": {"GET": get_metrics, "HEAD": get_metrics},
    "/cluster/status": {"GET": get_status, "HEAD": get_status},
}
