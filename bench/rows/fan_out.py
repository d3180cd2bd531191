"""One stream, many SSE subscribers: `ursula-bench fan-out`."""

from ..load import fan_out
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, REFERENCE_MEMORY, RUST, Kind, started

SUBSCRIBERS = 1000
WARM_UP_SUBSCRIBERS = 100
EVENTS_PER_SECOND = 20


def measure(plan: Plan) -> list[Row]:
    """Latency from the writer to every subscriber, and whether each got everything."""
    row = Row("sse", f"SSE, {SUBSCRIBERS:,} subscribers of one stream, {EVENTS_PER_SECOND} events/s")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    lost = row.figure("events not delivered", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            fan_out(server, "warm", WARM_UP_SUBSCRIBERS, EVENTS_PER_SECOND, WARM_UP_SECONDS)
            result = fan_out(server, "doc", SUBSCRIBERS, EVENTS_PER_SECOND, plan.seconds)
            p50.add(kind.name, result.fan_out_latency_ms.p50_ms)
            p99.add(kind.name, result.fan_out_latency_ms.p99_ms)
            lost.add(kind.name, result.events_sent * SUBSCRIBERS - result.events_received)

    plan.interleave(row, (OURS, REFERENCE_MEMORY, RUST), once)
    row.at_most(p99, 1, REFERENCE_MEMORY.name, REFERENCE_MEMORY.label)
    row.report(p99, RUST.name, RUST.label)
    row.never(lost)
    return [row]
