"""Many clients at once, each taking the snapshot of its stream and all that came after it."""

from ..load import ursula_bench_missing, ursula_bench_stampede
from ..memory import sampled, settled
from ..results import Row
from ..rounds import Plan
from ..servers import OURS_BUCKETED, RUST, Kind, Server, started
from ..stampede import Content, Stampede, prepare, stampede

CLIENTS = 1000
CONTENT = Content(messages=200, bytes_each=1024)
ROUNDS_MAX = 3
PEAK_MB_MAX = 100
AFTER_MB_MAX = 32
LEAD_SECONDS = 0.05
"""How long before a stampede its memory is said to be that of before; a load takes as long to end."""


def measure(plan: Plan) -> list[Row]:
    """Latency, and the memory of the server before, meanwhile and afterwards."""
    size = f"{CONTENT.messages} x {CONTENT.bytes_each >> 10} KiB"
    row = Row("bootstrap", f"{CLIENTS:,} concurrent bootstraps, each of a stream of {size}")
    row.note(f"a snapshot of {CONTENT.snapshot_bytes >> 10} KiB replaces the first half of each stream")
    row.note(f"at most {ROUNDS_MAX} rounds: each begins with {CLIENTS * CONTENT.messages:,} appends")
    row.note(
        f"memory counts as flat if it grows by at most {PEAK_MB_MAX} MB, including connections, and at most "
        f"{AFTER_MB_MAX} MB of that remain; unread responses are in memory, and all responses together are "
        f"{CLIENTS * CONTENT.answer_bytes / 1e6:.0f} MB"
    )
    if reason := ursula_bench_missing():
        row.note(f"{reason}: our own load generator was used")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    received = row.figure("received", "MB", drawn=False)
    before = row.figure("memory before", "MB", drawn=False)
    peak = row.figure("additional memory, peak", "MB")
    after = row.figure("additional memory, afterwards", "MB", drawn=False)
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            with sampled(server.process) as samples:
                result = _stampede(server)
                memory = samples.last(result.seconds + LEAD_SECONDS)
            p50.add(kind.name, result.p50_ms)
            p99.add(kind.name, result.p99_ms)
            received.add(kind.name, result.bytes / 1e6)
            before.add(kind.name, memory.before / 1e6)
            peak.add(kind.name, (memory.peak - memory.before) / 1e6)
            after.add(kind.name, (settled(server.process) - memory.before) / 1e6)
            failed.add(kind.name, result.failed)

    plan.at_most(ROUNDS_MAX).interleave(row, (OURS_BUCKETED, RUST), once)
    row.report(p99, RUST.name, RUST.label)
    row.value_at_most(peak, PEAK_MB_MAX)
    row.value_at_most(after, AFTER_MB_MAX)
    row.never(failed)
    return [row]


def _stampede(server: Server) -> Stampede:
    """Make the streams, then have all clients come at once."""
    if ursula_bench_missing() is None:
        return ursula_bench_stampede(server, CLIENTS, CONTENT)
    prepare(server, CLIENTS, CONTENT)
    return stampede(server, CLIENTS, CONTENT)
