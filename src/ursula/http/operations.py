"""What an operator may see and do: the routes below /cluster. One node is a cluster of one."""

from collections.abc import Callable
from typing import Any

import msgspec

from ..engine.status import GroupStatus
from ..log.seam import COUNTER_MASK
from ..model.limits import LIST_PAGE_MAX
from .errors import Problem
from .exchange import Exchange
from .query import parse_count, parse_query

_JSON = [("content-type", "application/json"), ("cache-control", "no-store")]
_TERM = 1


def get_status(exchange: Exchange) -> None:
    """GET on the status: who leads, who votes, how far the log is. Answers also while it is replayed."""
    app = exchange.app
    groups = app.node.statuses()
    # With several groups the node is where the one furthest behind is.
    furthest_behind = max(groups, key=lambda group: group.lag, default=None)
    status = {
        **_status(exchange, furthest_behind, app.node.recovered),
        "cluster": app.node.cluster,
        "generation": app.node.generation,
        "groups": [{"group": group.number, **_status(exchange, group, group.recovered)} for group in groups],
    }
    _send(exchange, 200, status)


def _status(exchange: Exchange, group: GroupStatus | None, recovered: bool) -> dict[str, Any]:
    node_id = exchange.app.node_id
    # A log that still begins with its first entry was never purged.
    purged = group.first if group is not None and group.first & COUNTER_MASK else 0
    return {
        "node_id": node_id,
        "leader_id": node_id,
        "term": _TERM,
        "state": "leader",
        "membership": {"voters": [node_id], "learners": []},
        "last_log_index": group.tail if group is not None else 0,
        "last_applied_index": group.applied if group is not None else 0,
        "snapshot_index": purged,
        "purged_index": purged,
        "payload_ready": recovered,
        "recovery_complete": recovered,
    }


def get_hot_cold_stats(exchange: Exchange) -> None:
    """GET on the statistics: where the bytes are, and whether more are taken."""

    async def answer() -> None:
        app = exchange.app
        found = await app.node.survey()
        age = 0 if found.oldest_at is None else max(0, app.node.now() - found.oldest_at)
        backed_up = app.bodies.is_backed_up
        statistics = {
            "hot_bytes": found.hot_bytes,
            "cold_bytes": 0,
            "streams": [
                {"bucket_id": stream.bucket, "stream_id": stream.stream, "hot_bytes": stream.hot_bytes}
                for stream in found.largest
            ],
            # Without a cold tier everything is still to be flushed.
            "flush_backlog": {"bytes": found.hot_bytes, "oldest_ms": age // 1000},
            "backpressure": {"active": backed_up, "reason": _reason(exchange) if backed_up else None},
            "caches": {},
        }
        _send(exchange, 200, statistics)

    exchange.app.spawn(exchange, answer())


def _reason(exchange: Exchange) -> str:
    bodies = exchange.app.bodies
    return (
        f"{bodies.held_bytes} of {bodies.held_bytes_max} bytes that may be read or queued at once "
        "(limits.inflight_bytes) are in use"
    )


def list_buckets(exchange: Exchange) -> None:
    """GET on the buckets: a page of them, sorted by name."""
    given = parse_query(exchange.scope.query_string)
    limit = parse_count(given, "limit", LIST_PAGE_MAX, 1, LIST_PAGE_MAX)
    found = exchange.app.node.list_buckets(given.get("after", ""), limit + 1)
    page, has_more = found[:limit], len(found) > limit
    answer = {
        "buckets": [
            {
                "bucket_id": bucket.name,
                "streams": bucket.stream_count,
                "created_at_ms": bucket.created_at // 1000,
            }
            for bucket in page
        ],
        "next_cursor": page[-1].name if page else None,
        "has_more": has_more,
    }
    _send(exchange, 200, answer)


def need_cold_tier(exchange: Exchange) -> None:
    """POST on what moves data out of memory and the log, which needs somewhere to move it to."""
    raise Problem("not_available", "this needs the cold tier, which this version does not have")


class Transfer(msgspec.Struct):
    """What is asked of a leader: to let that node lead, or any other."""

    node_id: int | None = None


def transfer_leader(exchange: Exchange) -> None:
    """POST on the transfer of leadership."""
    exchange.read_body(lambda body: _transfer(exchange, body))


def _transfer(exchange: Exchange, body: bytes) -> None:
    try:
        wanted = msgspec.json.decode(body, type=Transfer) if body.strip() else Transfer()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Problem("invalid_json", f'the body is {{"node_id": number}} or empty: {error}') from None
    if wanted.node_id is not None and wanted.node_id != exchange.app.node_id:
        raise Problem("invalid_parameter", f"no node has the id {wanted.node_id}")
    raise Problem("not_available", "this node is the only one: there is no other that could lead")


def _send(exchange: Exchange, status: int, answer: object) -> None:
    exchange.send(status, _JSON, msgspec.json.encode(answer))


ROUTES: dict[str, dict[str, Callable[[Exchange], None]]] = {
    "/cluster/hot-cold-stats": {"GET": get_hot_cold_stats, "HEAD": get_hot_cold_stats},
    "/cluster/buckets": {"GET": list_buckets, "HEAD": list_buckets},
    "/cluster/trigger-snapshot": {"POST": need_cold_tier},
    "/cluster/purge-log": {"POST": need_cold_tier},
    "/cluster/flush": {"POST": need_cold_tier},
    "/cluster/transfer-leader": {"POST": transfer_leader},
}
"""What is answered once the log has been replayed."""
