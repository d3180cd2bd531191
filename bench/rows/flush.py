"""What appends lose to the flush that goes on meanwhile."""

from ..client import create_streams
from ..cold import NEVER_FLUSHED, flush_count
from ..load import append_load
from ..results import OURS as NAME
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS, Kind, started

STREAMS = 100
CONNECTIONS = 64


def measure(plan: Plan) -> list[Row]:
    """Appends per second with flushing on and off, one after the other in every round."""
    row = Row("flush", f"durable append, 256 B, {STREAMS} streams, {CONNECTIONS} connections, during flushes")
    flushing = row.figure("appends/s, flushing")
    never = row.figure("appends/s, never flushed")
    flushes = row.figure("flushes during the load", drawn=False)
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        for one, speed in ((kind, flushing), (NEVER_FLUSHED, never)):
            with started(one) as server:
                create_streams(server, STREAMS)
                append_load(server, STREAMS, CONNECTIONS, WARM_UP_SECONDS)
                before = flush_count(server)
                result = append_load(server, STREAMS, CONNECTIONS, plan.seconds)
                speed.add(NAME, result.per_second)
                failed.add(NAME, result.failed)
                if one is kind:
                    flushes.add(NAME, flush_count(server) - before)

    plan.interleave(row, (OURS,), once)
    row.growth_at_least(flushing, 0.85, never, "never flushed")
    row.never(failed)
    return [row]
