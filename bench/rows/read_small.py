"""Reading a short stream from its beginning, over and over."""

from ..client import append_in_order
from ..load import wrk
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import BEFORE, ELECTRIC, OURS, REFERENCE_MEMORY, Kind, started

CONNECTIONS = 64
MESSAGES = [b"x" * 256] * 4


def measure(plan: Plan) -> list[Row]:
    """Reads per second."""
    row = Row("read", f"catch-up read, 1 KiB stream, {CONNECTIONS} connections")
    speed = row.figure("reads/s")
    cpu = row.figure("server CPU per read", "µs")
    failed = row.figure("failed requests", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            append_in_order(server, "short", MESSAGES)
            path = [server.path("short")]
            wrk(server, "read", path, CONNECTIONS, WARM_UP_SECONDS)
            before = server.process.cpu_seconds()
            result = wrk(server, "read", path, CONNECTIONS, plan.seconds)
            used = server.process.cpu_seconds() - before
            speed.add(kind.name, result.per_second)
            cpu.add(kind.name, used * 1e6 / max(1, result.requests))
            failed.add(kind.name, result.failed)

    plan.interleave(row, (OURS, REFERENCE_MEMORY, ELECTRIC, BEFORE), once)
    row.at_least(speed, 0.9, ELECTRIC.name, ELECTRIC.label)
    row.at_least(speed, 1.2, REFERENCE_MEMORY.name, REFERENCE_MEMORY.label)
    row.never(failed)
    return [row]
