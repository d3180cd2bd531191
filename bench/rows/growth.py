"""Whether an append costs more when there are many streams."""

from ..client import create_streams
from ..load import append_load
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, Kind, started

COUNTS = (10, 1_000, 100_000)
CONNECTIONS = 64


def measure(plan: Plan) -> list[Row]:
    """Appends per second with few and with many streams; all numbers of streams in every round."""
    row = Row("growth", f"durable append, 256 B, increasing number of streams, {CONNECTIONS} connections")
    speeds = {count: row.figure(f"appends/s, {count:,} streams") for count in COUNTS}
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        for count, speed in speeds.items():
            with started(kind) as server:
                create_streams(server, count)
                append_load(server, count, CONNECTIONS, WARM_UP_SECONDS)
                result = append_load(server, count, CONNECTIONS, plan.seconds)
                speed.add(kind.name, result.per_second)
                failed.add(kind.name, result.failed)

    plan.interleave(row, (OURS,), once)
    few = speeds[COUNTS[0]]
    for count in COUNTS[1:]:
        row.report_growth(speeds[count], few, f"against {COUNTS[0]} streams: nearly flat")
    row.never(failed)
    return [row]
