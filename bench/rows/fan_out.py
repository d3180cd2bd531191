"""SSE: one stream with many subscribers (`ursula-bench fan-out`), and many streams with one each."""

from ..client import TEXT, create_streams
from ..load import fan_out
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import ELECTRIC, OURS, REFERENCE_MEMORY, RUST, Kind, started
from ..subscribers import measure_subscribers

SUBSCRIBERS = 1000
WARM_UP_SUBSCRIBERS = 100
EVENTS_PER_SECOND = 20

STREAMS = 1000
STREAM_EVENTS_PER_SECOND = 500


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

    plan.interleave(row, (OURS, REFERENCE_MEMORY, RUST, ELECTRIC), once)
    for rival in (REFERENCE_MEMORY, RUST, ELECTRIC):
        row.at_most(p99, 1, rival.name, rival.label)
    row.never(lost)
    return [row, _many_streams(plan)]


def _many_streams(plan: Plan) -> Row:
    row = Row(
        "sse", f"SSE, {STREAMS:,} streams with one subscriber each, {STREAM_EVENTS_PER_SECOND} events/s"
    )
    row.note("latency from sending an append to reading its event; writers and readers share one process")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    lost = row.figure("events not delivered", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            create_streams(server, STREAMS, "doc", TEXT)
            measure_subscribers(server, "doc", STREAMS, STREAM_EVENTS_PER_SECOND, WARM_UP_SECONDS)
            result = measure_subscribers(server, "doc", STREAMS, STREAM_EVENTS_PER_SECOND, plan.seconds)
            p50.add(kind.name, result.p50_ms)
            p99.add(kind.name, result.p99_ms)
            lost.add(kind.name, result.lost)

    plan.interleave(row, (OURS, REFERENCE_MEMORY, RUST, ELECTRIC), once)
    row.at_most(p99, 1, RUST.name, RUST.label)
    row.at_most(p99, 1, ELECTRIC.name, ELECTRIC.label)
    row.never(lost)
    return row
