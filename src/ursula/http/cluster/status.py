"""The status of the node, for operators. A single node is a cluster of one."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ...engine.interface import ClusterApi
from ...engine.status.cluster_status import NodeReport
from ...engine.status.cold_status import ColdStatus
from ...engine.status.group_status import GroupStatus
from ...log.interface import purged_to
from ...model.limits import LIST_PAGE_MAX
from ..certainty import in_time
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.query import parse_count, parse_query

_TERM = 1


async def get_status(exchange: Exchange) -> None:
    """GET on the status: leader, members and log positions. Served even during replay."""
    services = exchange.services
    node, cluster = services.node, services.cluster
    statuses = node.statuses()
    tails = _find_tails(statuses, () if cluster is None else cluster.nodes.values())
    statuses = [group._replace(tail=tail) for group, tail in zip(statuses, tails, strict=False)]
    groups = list(zip(statuses, node.cold_statuses(), strict=True))
    # With several groups, the node reports the one that is furthest behind.
    group, cold = max(groups, key=lambda found: found[0].lag, default=(None, None))
    raft = _raft(services.node_id, cluster)
    status = {
        **raft,
        **_status(group, cold, node.recovered),
        "reason": None if node.recovered else node.busy_with,
        "cluster": node.cluster,
        "generation": node.generation,
        "disagreement": node.disagreement,
        "nodes": _nodes(cluster, tails),
        "groups": [
            {"group": group.number, **raft, **_status(group, cold, group.recovered)} for group, cold in groups
        ],
    }
    exchange.reply_json(200, status)


def status_before_joining(node_id: int, cluster: ClusterApi, reason: str) -> dict[str, Any]:
    """The status of a node that is not part of its cluster yet: it has no groups, and knows only etcd."""
    return {
        **_raft(node_id, cluster),
        **_status(None, None, recovered=False),
        "reason": reason,
        "cluster": None,
        "generation": None,
        "nodes": _nodes(cluster, _find_tails((), cluster.nodes.values())),
        "groups": [],
    }


def _find_tails(own: Sequence[GroupStatus], nodes: Iterable[NodeReport]) -> list[int]:
    """The last position of each group that any node has reached: a node that is behind does not know it."""
    reached = [[group.tail for group in own], *(node.positions for node in nodes)]
    return [max(positions) for positions in zip_longest(*reached, fillvalue=0)]


def _status(group: GroupStatus | None, cold: ColdStatus | None, recovered: bool) -> dict[str, Any]:
    return {
        "last_log_index": group.tail if group is not None else 0,
        "last_applied_index": group.applied if group is not None else 0,
        "snapshot_index": cold.manifest_position if cold is not None else 0,
        "purged_index": purged_to(group.first) if group is not None else 0,
        "payload_ready": recovered,
        "recovery_complete": recovered,
        "disagreement": group.disagreement if group is not None else None,
    }


def _raft(node_id: int, cluster: ClusterApi | None) -> dict[str, Any]:
    """Who leads, and who votes."""
    if cluster is None:
        leader: int | None = node_id
        term, membership = _TERM, {"voters": [node_id], "learners": []}
    else:
        leader, term, membership = cluster.leader, cluster.term, cluster.membership
    state = "leader" if leader == node_id else "learner" if node_id in membership["learners"] else "follower"
    return {
        "node_id": node_id,
        "leader_id": leader,
        "term": term,
        "state": state,
        "membership": membership,
    }


def _nodes(cluster: ClusterApi | None, tails: Sequence[int]) -> list[dict[str, Any]]:
    """Every node that is there, as it says itself; empty on a single node."""
    if cluster is None:
        return []
    members = cluster.raft_members
    return [
        {
            "node_id": report.node_id,
            "address": report.address,
            "version": report.version,
            "positions": report.positions,
            "lag": _lag(report.positions, tails),
            "leads": report.node_id == cluster.leader,
            "is_keeper": report.node_id == cluster.keeper,
            "clock_problem": report.clock_problem,
            "raft": members.get(report.node_id),
            "samples": [
                {"entries": one.entry_count, "position": one.position, "hash": one.hash.hex()}
                for samples in report.samples
                for one in samples[-1:]
            ],
        }
        for report in sorted(cluster.nodes.values(), key=lambda report: report.node_id)
    ]


def _lag(positions: Sequence[int], tails: Sequence[int]) -> int | None:
    """How far a node is behind in the group that is furthest behind; None while it opens its groups."""
    if len(positions) < len(tails):
        return None
    return max((tail - position for tail, position in zip(tails, positions, strict=False)), default=None)


async def get_hot_cold_stats(exchange: Exchange) -> None:
    """GET on the statistics: where the bytes are, and whether writes are rejected."""
    node = exchange.services.node
    found = await node.report_hot_bytes()
    groups = node.cold_statuses()
    age = 0 if found.oldest_at is None else max(0, node.now() - found.oldest_at)
    reason = _inflight_reason(exchange) or _hot_reason(exchange, groups)
    statistics = {
        "hot_bytes": found.hot_bytes,
        "recent_bytes": sum(group.recent_bytes for group in groups),
        "cold_bytes": sum(group.segment_bytes for group in groups),
        "streams": [
            {"bucket_id": stream.bucket, "stream_id": stream.stream, "hot_bytes": stream.hot_bytes}
            for stream in found.largest
        ],
        "parked_streams": found.parked_streams,
        "ended_streams": sum(group.ended_streams for group in groups),
        "segments": sum(group.segment_count for group in groups),
        "payload_bytes": sum(group.payload_bytes for group in groups),
        "flush_backlog": {"bytes": found.hot_bytes, "oldest_ms": age // 1000},
        "flush_problem": next(filter(None, (group.problem for group in groups)), None),
        "backpressure": {"active": reason is not None, "reason": reason},
        "caches": {name: cache._asdict() for name, cache in node.cache_statuses().items()},
    }
    exchange.reply_json(200, statistics)


def _inflight_reason(exchange: Exchange) -> str | None:
    bodies = exchange.services.bodies
    if not bodies.is_backed_up:
        return None
    return (
        f"{bodies.held_bytes} of the {bodies.held_bytes_max} bytes that may be read or queued at once "
        "(limits.inflight_bytes) are in use"
    )


def _hot_reason(exchange: Exchange, groups: list[ColdStatus]) -> str | None:
    full = [group for group in groups if group.is_full]
    if not full:
        return None
    held, limit = sum(group.held_bytes for group in groups), exchange.services.node.hot_bytes_max
    problem = next(filter(None, (group.problem for group in full)), None)
    return f"{held} of the {limit} bytes that may wait for the store (cold.max_hot_bytes) are in memory" + (
        f", which cannot be flushed: {problem}" if problem else ""
    )


async def list_buckets(exchange: Exchange) -> None:
    """GET on the buckets: a page of them, sorted by name."""
    given = parse_query(exchange.request.query_string)
    limit = parse_count(given, "limit", LIST_PAGE_MAX, 1, LIST_PAGE_MAX)
    node = exchange.services.node
    if not exchange.reads_locally:
        await in_time(node.current())
    found = node.list_buckets(given.get("after", ""), limit + 1)
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
    exchange.reply_json(200, answer)


class TransferRequest(msgspec.Struct):
    """A request to the leader to hand over to this node, or to any other."""

    node_id: int | None = None


async def transfer_leader(exchange: Exchange) -> None:
    """POST on the transfer of leadership."""
    body_help = 'the body must be {"node_id": number} or empty'
    request = await exchange.read_json(TransferRequest, body_help, if_empty=TransferRequest())
    cluster = exchange.services.cluster
    if cluster is None:
        if request.node_id is not None and request.node_id != exchange.services.node_id:
            raise Problem("invalid_parameter", f"no node has the id {request.node_id}")
        raise Problem("not_available", "this is the only node: no other could lead")
    problem = await cluster.transfer_leader(request.node_id)
    if problem is not None:
        raise Problem("invalid_parameter" if problem.is_request else "unavailable", problem.reason)
    exchange.reply_json(200, {"leader_id": cluster.leader})
