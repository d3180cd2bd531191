"""One writer per stream, each an idempotent producer: `ursula-bench multi-stream`."""

from ..client import create_streams
from ..load import append_load, multi_stream
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import BEFORE, ELECTRIC, OURS, RUST, Kind, started

STREAMS = 100
WARM_UP_CONNECTIONS = 64


def measure(plan: Plan) -> list[Row]:
    """Appends and their latency."""
    row = Row("multi-stream", f"ursula-bench multi-stream, {STREAMS} streams, 256 B, with producers")
    row.note("Rust Ursula no longer serves /v1/stream, so ursula-bench uses --api-style ursula for it")
    speed = row.figure("appends/s")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            # On other streams: a second run on the same ones would send what its producers sent before.
            create_streams(server, STREAMS, "warm")
            append_load(server, STREAMS, WARM_UP_CONNECTIONS, WARM_UP_SECONDS, "warm")
            result = multi_stream([server], STREAMS, plan.seconds)
            speed.add(kind.name, result.aggregate_ops_per_sec)
            p50.add(kind.name, result.latency_ms.p50_ms)
            p99.add(kind.name, result.latency_ms.p99_ms)
            failed.add(kind.name, result.counts.backpressure + result.counts.other_err)

    plan.interleave(row, (OURS, RUST, ELECTRIC, BEFORE), once)
    row.at_least(speed, 1.3, RUST.name, RUST.label)
    row.report(speed, ELECTRIC.name, ELECTRIC.label)
    row.at_most(p99, 1, RUST.name, RUST.label)
    row.never(failed)
    return [row]
