"""How long a node needs to start while the other two are written to, against the same start without load."""

import threading
import time

from ..client import create_streams
from ..cold import flush
from ..load import append_load, paced_append_load
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import Kind
from ..three_nodes import THREE_OURS, three_nodes

STREAMS = 100_000
MESSAGE_BYTES = 16 << 10
BYTES_PER_SECOND = 10_000_000
CONNECTIONS = 32
BEFORE_SECONDS = 3.0
ROUNDS_MAX = 3


def measure(plan: Plan) -> list[Row]:
    """Seconds from the start of the process until it is a ready part of the cluster."""
    row = Row("cluster-start", f"three nodes: start of one, {STREAMS:,} streams")
    quiet = row.figure("without load", "s")
    loaded = row.figure("under 10 MB/s of appends", "s")
    written = row.figure("appends during that start", "MB/s")

    def once(kind: Kind) -> None:
        with three_nodes(kind) as (nodes, servers):
            create_streams(servers[0], STREAMS)
            append_load(servers[0], STREAMS, CONNECTIONS, plan.seconds)
            flush(servers[0])
            nodes[2].process.stop()
            nodes[2].start()
            quiet.add(NAME, nodes[2].wait().ready_seconds)
            nodes[2].process.stop()
            stopping, rates = threading.Event(), []

            def load() -> None:
                while not stopping.is_set():
                    result = paced_append_load(
                        servers[0],
                        STREAMS,
                        BYTES_PER_SECOND // MESSAGE_BYTES,
                        CONNECTIONS,
                        1,
                        message_bytes=MESSAGE_BYTES,
                    )
                    rates.append(result.per_second * MESSAGE_BYTES / 1e6)

            thread = threading.Thread(target=load)
            thread.start()
            try:
                time.sleep(BEFORE_SECONDS)
                nodes[2].start()
                loaded.add(NAME, nodes[2].wait().ready_seconds)
            finally:
                stopping.set()
                thread.join()
            written.add(NAME, sum(rates) / len(rates))

    plan.at_most(ROUNDS_MAX).interleave(row, (THREE_OURS,), once)
    row.growth_at_most(loaded, 3, quiet, "without load")
    return [row]
