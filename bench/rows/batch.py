"""Messages in batches against messages one by one."""

from collections.abc import Callable

from ..client import create_streams, get
from ..failure import Failed
from ..load import WrkResult, append_load, batch_load
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS_BUCKETED, Kind, Server, started

STREAMS = 100
CONNECTIONS = 64
FRAMES = 100
MESSAGE_BYTES = 256


def measure(plan: Plan) -> list[Row]:
    """Messages per second both ways, each on a server of its own, in every round."""
    row = Row(
        "batch",
        f"durable append, {MESSAGE_BYTES} B, {STREAMS} streams, in batches, {CONNECTIONS} connections",
    )
    single = row.figure("messages/s, one by one")
    batched = row.figure(f"messages/s, {FRAMES} in a batch")
    cpu_single = row.figure("server CPU per message, one by one", "µs")
    cpu_batched = row.figure(f"server CPU per message, {FRAMES} in a batch", "µs")
    failed = row.figure("failed requests", drawn=False)

    def one_by_one(server: Server, seconds: float) -> WrkResult:
        return append_load(server, STREAMS, CONNECTIONS, seconds)

    def in_batches(server: Server, seconds: float) -> WrkResult:
        return batch_load(server, STREAMS, FRAMES, CONNECTIONS, seconds)

    loads: tuple[tuple[Callable[[Server, float], WrkResult], int], ...] = (
        (one_by_one, 1),
        (in_batches, FRAMES),
    )
    figures = ((single, cpu_single), (batched, cpu_batched))

    def once(kind: Kind) -> None:
        for (load, messages), (speed, cpu) in zip(loads, figures, strict=True):
            with started(kind) as server:
                create_streams(server, STREAMS)
                warm_up = load(server, WARM_UP_SECONDS)
                before = server.process.cpu_seconds()
                result = load(server, plan.seconds)
                used = server.process.cpu_seconds() - before
                _expect_stored(server, (warm_up.answered + result.answered) * messages)
                speed.add(kind.name, result.per_second * messages)
                cpu.add(kind.name, used * 1e6 / max(1, result.requests * messages))
                failed.add(kind.name, result.failed)

    plan.interleave(row, (OURS_BUCKETED,), once)
    row.growth_at_least(batched, 5, single, "one by one")
    row.never(failed)
    return [row]


def _expect_stored(server: Server, messages: int) -> None:
    """At least what was acknowledged is there; more, if the load broke off before an answer."""
    listed = get(server, f"/{server.kind.bucket}/streams").json()["streams"]
    stored = sum(stream["tail_offset"] for stream in listed) // MESSAGE_BYTES
    if stored < messages:
        raise Failed(f"{messages} messages were acknowledged and {stored} are there")
