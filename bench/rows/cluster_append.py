"""Durable appends on three nodes: with the writers on all of them, and with all on one."""

import time
from collections.abc import Sequence
from itertools import count

from ..failure import Failed
from ..load import multi_stream
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import Kind, Server
from ..three_nodes import THREE_OURS, THREE_RUST, three_nodes

STREAMS = 100
ELECTION_SECONDS_MAX = 30.0
RETRY_SECONDS = 0.5


def measure(plan: Plan) -> list[Row]:
    """Appends and their latency."""
    row = Row("cluster-append", f"three nodes: ursula-bench multi-stream, {STREAMS} streams, with producers")
    speed = row.figure("appends/s, writers on all nodes")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    cpu = row.figure("CPU of all nodes per append", "µs")
    one = row.figure("appends/s, all writers on one node")
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with three_nodes(kind) as (_, servers):
            _warm_up(servers)
            before = sum(server.process.cpu_seconds() for server in servers)
            result = multi_stream(servers, STREAMS, plan.seconds, "spread")
            used = sum(server.process.cpu_seconds() for server in servers) - before
            speed.add(kind.name, result.aggregate_ops_per_sec)
            p50.add(kind.name, result.latency_ms.p50_ms)
            p99.add(kind.name, result.latency_ms.p99_ms)
            cpu.add(kind.name, used * 1e6 / max(1, result.counts.ok))
            failed.add(kind.name, result.counts.backpressure + result.counts.other_err)
            together = multi_stream(servers[:1], STREAMS, plan.seconds, "together")
            one.add(kind.name, together.aggregate_ops_per_sec)

    plan.interleave(row, (THREE_OURS, THREE_RUST), once)
    row.at_least(speed, 1.2, THREE_RUST.name, THREE_RUST.label)
    row.at_most(p99, 1, THREE_RUST.name, THREE_RUST.label)
    row.growth_at_least(one, 1.5, speed, "writers on all nodes")
    row.never(failed)
    return [row]


def _warm_up(servers: Sequence[Server]) -> None:
    """Load the nodes for a moment. Some groups may still elect a leader, and then the load is tried again."""
    give_up_at = time.monotonic() + ELECTION_SECONDS_MAX
    for attempt in count():
        try:
            multi_stream(servers, STREAMS, WARM_UP_SECONDS, f"warm{attempt}")
            return
        except Failed:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(RETRY_SECONDS)
