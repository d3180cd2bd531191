"""What appends lose to the number of streams that they go to."""

from ..client import create_streams
from ..load import append_load
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, Kind, started

FEW, MANY = 10, 100_000
CONNECTIONS = 64


def measure(plan: Plan) -> list[Row]:
    """Appends per second over few and over many streams, one after the other in every round."""
    row = Row(
        "many-streams", f"durable append, 256 B, {MANY:,} streams against {FEW}, {CONNECTIONS} connections"
    )
    few = row.figure(f"appends/s, {FEW} streams")
    many = row.figure(f"appends/s, {MANY:,} streams")
    few_cpu = row.figure(f"server CPU per append, {FEW} streams", "µs")
    many_cpu = row.figure(f"server CPU per append, {MANY:,} streams", "µs")
    p99 = row.figure(f"p99, {MANY:,} streams", "ms")
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        for streams, speed, cpu in ((FEW, few, few_cpu), (MANY, many, many_cpu)):
            with started(kind) as server:
                create_streams(server, streams)
                append_load(server, streams, CONNECTIONS, WARM_UP_SECONDS)
                before = server.process.cpu_seconds()
                result = append_load(server, streams, CONNECTIONS, plan.seconds)
                used = server.process.cpu_seconds() - before
                speed.add(kind.name, result.per_second)
                cpu.add(kind.name, used * 1e6 / max(1, result.requests))
                failed.add(kind.name, result.failed)
                if streams == MANY:
                    p99.add(kind.name, result.p99_us / 1e3)

    plan.interleave(row, (OURS,), once)
    row.growth_at_least(many, 0.8, few, f"{FEW} streams")
    row.never(failed)
    return [row]
