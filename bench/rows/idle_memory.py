"""Memory of streams that nobody uses, each with one producer and one small message."""

from ..client import CONNECTIONS, DEPTH, OCTETS, Request, create_streams, send_all
from ..cold import flush
from ..memory import settled
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, started

STREAMS = 100_000
MESSAGE = b"a small message"


def measure(plan: Plan) -> list[Row]:
    """Resident memory above that of the empty server, for each stream."""
    row = Row("memory", f"idle streams: {STREAMS:,}, each with a producer and a {len(MESSAGE)} B message")
    row.note("idle: after a requested flush; by default streams become idle after about a minute")
    each = row.figure("memory per stream, idle", "KB")
    fresh = row.figure("memory per stream, just written", "KB")
    empty = row.figure("empty server", "MB")

    def once(kind: Kind) -> None:
        with started(kind) as server:
            # The same connections on both sides of the difference.
            send_all(server, [Request("GET", kind.ready)] * (CONNECTIONS * DEPTH * 4))
            before = settled(server.process)
            create_streams(server, STREAMS)
            send_all(server, (_message(server, number) for number in range(STREAMS)))
            fresh.add(kind.name, (settled(server.process) - before) / STREAMS / 1e3)
            flush(server)
            each.add(kind.name, (settled(server.process) - before) / STREAMS / 1e3)
            empty.add(kind.name, before / 1e6)

    plan.interleave(row, (OURS,), once)
    row.value_at_most(each, 1.3)
    return [row]


def _message(server: Server, number: int) -> Request:
    producer = {"Producer-Id": f"producer-{number}", "Producer-Epoch": "0", "Producer-Seq": "0"}
    return Request("POST", server.path(f"s{number}"), MESSAGE, OCTETS | producer)
