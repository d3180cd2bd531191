"""Subscribers on the writer's node and on another one of three nodes."""

from ..client import TEXT, create_streams
from ..results import OURS as NAME
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import Kind
from ..subscribers import measure_subscribers
from ..three_nodes import THREE_OURS, three_nodes

STREAMS = 100
EVENTS_PER_SECOND = 200


def measure(plan: Plan) -> list[Row]:
    """Latency from sending an append to reading its event."""
    row = Row(
        "cluster-sse",
        f"three nodes: SSE, {STREAMS} streams with a subscriber each, {EVENTS_PER_SECOND} events/s",
    )
    same = row.figure("p50 on the writer's node", "ms")
    other = row.figure("p50 on another node", "ms")
    later = row.figure("p50, how much later on another node", "ms")
    lost = row.figure("events not delivered", drawn=False)

    def once(kind: Kind) -> None:
        with three_nodes(kind) as (_, servers):
            writer = servers[0]
            create_streams(writer, STREAMS, "doc", TEXT)
            found = []
            for reader in servers[:2]:
                for seconds in (WARM_UP_SECONDS, plan.seconds):
                    result = measure_subscribers(
                        reader, "doc", STREAMS, EVENTS_PER_SECOND, seconds, writes_to=writer
                    )
                found.append(result)
            same.add(NAME, found[0].p50_ms)
            other.add(NAME, found[1].p50_ms)
            later.add(NAME, found[1].p50_ms - found[0].p50_ms)
            lost.add(NAME, sum(result.lost for result in found))

    plan.interleave(row, (THREE_OURS,), once)
    row.value_at_most(later, 5)
    row.never(lost)
    return [row]
