"""Reads of a short stream on each of three nodes, against a single node."""

from ..client import append_in_order
from ..load import wrk
from ..results import OURS as NAME
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, Kind, Server, started
from ..three_nodes import THREE_OURS, three_nodes

CONNECTIONS = 64
MESSAGES = [b"x" * 256] * 8
BELOW_THE_TAIL = "?offset=-1&max_bytes=1024"
TO_THE_TAIL = "?offset=1024"

THREE_LOCAL = THREE_OURS.with_settings(http__reads="local")


def measure(plan: Plan) -> list[Row]:
    """Reads per second: of the slowest node, where there are three."""
    row = Row("cluster-read", f"three nodes: catch-up read of 1 KiB, {CONNECTIONS} connections, on one node")
    below_single = row.figure("reads/s below the tail, single node")
    below = row.figure("reads/s below the tail")
    tail_single = row.figure("reads/s to the tail, single node")
    tail = row.figure("reads/s to the tail")
    local = row.figure('reads/s to the tail, http.reads = "local"')
    failed = row.figure("failed requests", drawn=False)

    def slowest(servers: list[Server], query: str) -> float:
        found = []
        for server in servers:
            arguments = [server.path("short"), query]
            wrk(server, "read", arguments, CONNECTIONS, WARM_UP_SECONDS)
            result = wrk(server, "read", arguments, CONNECTIONS, plan.seconds)
            failed.add(NAME, result.failed)
            found.append(result.per_second)
        return min(found)

    def once(kind: Kind) -> None:
        with started(OURS) as server:
            append_in_order(server, "short", MESSAGES)
            below_single.add(NAME, slowest([server], BELOW_THE_TAIL))
            tail_single.add(NAME, slowest([server], TO_THE_TAIL))
        with three_nodes(kind) as (_, servers):
            append_in_order(servers[0], "short", MESSAGES)
            below.add(NAME, slowest(servers, BELOW_THE_TAIL))
            tail.add(NAME, slowest(servers, TO_THE_TAIL))
        with three_nodes(THREE_LOCAL) as (_, servers):
            append_in_order(servers[0], "short", MESSAGES)
            local.add(NAME, slowest(servers, TO_THE_TAIL))

    plan.interleave(row, (THREE_OURS,), once)
    row.growth_at_least(below, 0.9, below_single, "a single node")
    row.growth_at_least(tail, 0.25, tail_single, "a single node")
    row.growth_at_least(local, 0.9, tail_single, "a single node")
    row.never(failed)
    return [row]
