"""Liveness and readiness, served even during replay."""

from ..exchange import Exchange


async def healthz(exchange: Exchange) -> None:
    """The process is alive."""
    exchange.reply_json(200, {"status": "ok"})


async def readyz_local(exchange: Exchange) -> None:
    """This node has recovered and serves requests, writes included."""
    _reply_readiness(exchange)


async def readyz_cluster(exchange: Exchange) -> None:
    """The cluster serves requests: this node does, it knows its members, and every group has a leader.

    A single node is its only member and leads, so the cluster is ready when the node is.
    """
    _reply_readiness(exchange)


def _reply_readiness(exchange: Exchange) -> None:
    node = exchange.services.node
    answer: dict[str, object] = {"ready": False}
    if exchange.services.live.is_stopping:
        answer["reason"] = "the server is stopping"
    elif not node.recovered:
        answer |= {"reason": node.busy_with, "progress": round(node.progress, 4)}
    elif node.log_problem is not None:
        answer["reason"] = f"the log does not accept entries: {node.log_problem}"
    else:
        answer["ready"] = True
    exchange.reply_json(200 if answer["ready"] else 503, answer)
