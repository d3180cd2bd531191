"""Liveness and readiness, served even during replay."""

from ..exchange import Exchange


async def healthz(exchange: Exchange) -> None:
    """The process is alive."""
    exchange.reply_json(200, {"status": "ok"})


async def readyz_local(exchange: Exchange) -> None:
    """This node has recovered and serves requests, writes included."""
    _reply_readiness(exchange)


async def readyz_cluster(exchange: Exchange) -> None:
    """The cluster serves requests: this node does, its member is a voter in contact, and there is a leader.

    A single node is its only member and leads, so the cluster is ready when the node is.
    """
    cluster = exchange.services.cluster
    _reply_readiness(exchange, None if cluster is None else cluster.problem)


def _reply_readiness(exchange: Exchange, problem: str | None = None) -> None:
    node, cluster = exchange.services.node, exchange.services.cluster
    if problem is None and cluster is not None and cluster.is_lost:
        problem = cluster.problem
    answer: dict[str, object] = {"ready": False}
    if exchange.services.live.is_stopping:
        answer["reason"] = "the server is stopping"
    elif not node.recovered:
        answer |= {"reason": node.busy_with, "progress": round(node.progress, 4)}
    elif node.disagreement is not None:
        answer["reason"] = node.disagreement
    elif node.log_problem is not None:
        answer["reason"] = f"the log does not accept entries: {node.log_problem}"
    elif problem is not None:
        answer["reason"] = problem
    else:
        answer["ready"] = True
    exchange.reply_json(200 if answer["ready"] else 503, answer)
