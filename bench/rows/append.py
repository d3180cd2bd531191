"""Durable appends of 256 bytes over 100 streams, as fast as the connections allow."""

from ..client import create_streams
from ..load import append_load
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import (
    BARE,
    BEFORE,
    ELECTRIC,
    OURS,
    REFERENCE_FILE,
    REFERENCE_MEMORY,
    RUST,
    Kind,
    started,
)

STREAMS = 100

RIVALS = (REFERENCE_FILE, REFERENCE_MEMORY, RUST, ELECTRIC)
MEMORY_FACTOR = {64: 0.8, 256: 1.1}


def measure(plan: Plan) -> list[Row]:
    """One row for each number of connections."""
    return [_at(plan, connections) for connections in (1, 64, 256)]


def _at(plan: Plan, connections: int) -> Row:
    row = Row("append", f"durable append, 256 B, {STREAMS} streams, {connections} connections")
    speed = row.figure("appends/s")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    cpu = row.figure("server CPU per append", "µs")
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            create_streams(server, STREAMS)
            append_load(server, STREAMS, connections, WARM_UP_SECONDS)
            before = server.process.cpu_seconds()
            result = append_load(server, STREAMS, connections, plan.seconds)
            used = server.process.cpu_seconds() - before
            speed.add(kind.name, result.per_second)
            p50.add(kind.name, result.p50_us / 1e3)
            p99.add(kind.name, result.p99_us / 1e3)
            cpu.add(kind.name, used * 1e6 / max(1, result.requests))
            failed.add(kind.name, result.failed)

    plan.interleave(row, (*RIVALS, OURS, BEFORE, BARE), once)
    if connections == 1:
        for rival in (*RIVALS, BEFORE):
            row.report(p50, rival.name, rival.label)
    else:
        row.at_least(speed, 1, ELECTRIC.name, ELECTRIC.label)
        row.at_most(p99, 1, ELECTRIC.name, ELECTRIC.label)
        row.at_least(speed, 1.5, RUST.name, RUST.label)
        row.at_least(speed, 8, REFERENCE_FILE.name, REFERENCE_FILE.label)
        row.at_least(speed, MEMORY_FACTOR[connections], REFERENCE_MEMORY.name, REFERENCE_MEMORY.label)
        if BEFORE.missing() is None:
            row.at_most(cpu, 0.55, BEFORE.name, BEFORE.label)
        row.report(cpu, BARE.name, BARE.label)
    row.never(failed)
    return row
