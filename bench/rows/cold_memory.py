"""Memory of a server through which far more goes than it may hold."""

import time

from ..memory import settled
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..scattered import CONNECTIONS, MESSAGE_BYTES, STREAMS, Scattered
from ..servers import OURS, Kind, started

WRITTEN_BYTES = 4 << 30
READ_BYTES = 1 << 30
LIMIT_BYTES = 64 << 20
QUICK = 16
"""How many times less is written and read when it is only tried."""

_LIMITED = OURS.with_settings(cold__max_hot_bytes=str(LIMIT_BYTES), cold__cache_bytes=str(LIMIT_BYTES))


def measure(plan: Plan) -> list[Row]:
    """The most memory that the server ever held, against what it was allowed to."""
    less = QUICK if plan.is_quick else 1
    written, read = WRITTEN_BYTES // less, READ_BYTES // less
    row = Row(
        "cold-memory",
        f"memory while {written >> 20:,} MiB are written and {read >> 20:,} MiB read at random offsets",
    )
    row.note(
        f"one round; {MESSAGE_BYTES >> 10} KiB appends over {STREAMS} streams, {CONNECTIONS} connections; "
        f"max_hot_bytes and cache_bytes are {LIMIT_BYTES >> 20} MiB each"
    )
    share = row.figure("peak against max_hot_bytes + cache_bytes + base", "x")
    peak = row.figure("peak", "MB")
    base = row.figure("base: before the first request", "MB")
    write_speed = row.figure("write", "MB/s")
    read_speed = row.figure("read", "MB/s")
    held_back = row.figure("appends rejected with 503 and retried", drawn=False)

    def once(kind: Kind) -> None:
        with started(kind) as server:
            idle = settled(server.process)
            load = Scattered(server, written // MESSAGE_BYTES)
            begun = time.perf_counter()
            load.write()
            between = time.perf_counter()
            load.read(read)
            end = time.perf_counter()
            most = server.process.resident_bytes_max()
            share.add(NAME, most / (2 * LIMIT_BYTES + idle))
            peak.add(NAME, most / 1e6)
            base.add(NAME, idle / 1e6)
            write_speed.add(NAME, load.size / 1e6 / (between - begun))
            read_speed.add(NAME, read / 1e6 / (end - between))
            held_back.add(NAME, load.held_back)

    plan.at_most(1).interleave(row, (_LIMITED,), once)
    row.value_at_most(share, 1.5)
    return [row]
