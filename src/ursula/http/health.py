"""Whether the process lives, and whether it is ready: answered also while the log is replayed."""

import msgspec

from .exchange import Exchange

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]


def healthz(exchange: Exchange) -> None:
    """The process lives."""
    exchange.send(200, _JSON, b'{"status":"ok"}')


def readyz_local(exchange: Exchange) -> None:
    """This node has recovered and takes requests."""
    node = exchange.app.node
    if exchange.app.stopping:
        status, answer = 503, {"ready": False, "reason": "the server is stopping"}
    elif node.recovered:
        status, answer = 200, {"ready": True}
    else:
        reason = "the log is being replayed"
        status, answer = 503, {"ready": False, "reason": reason, "progress": round(node.progress, 4)}
    exchange.send(status, _JSON, msgspec.json.encode(answer))


ROUTES = {"/healthz": healthz, "/readyz/local": readyz_local}
