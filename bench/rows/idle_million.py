"""A great many streams that nobody uses: how fast a server starts with them, and what they take."""

import time

from ..client import OCTETS, Request, ask, send_all
from ..cold import FLUSH_SECONDS_MAX
from ..memory import settled
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, scratch_folder, started

STREAMS = 1_000_000
STREAMS_QUICK = 100_000
MESSAGE = b"a small message"
START_SECONDS_MAX = 180.0


def measure(plan: Plan) -> list[Row]:
    """Make the streams, flush, stop, and start from the store."""
    streams = STREAMS_QUICK if plan.is_quick else STREAMS
    row = Row("idle-million", f"start from the store with {streams:,} idle streams")
    row.note(f"one round; each stream was created over HTTP, with a producer and a {len(MESSAGE)} B message")
    memory = row.figure("memory", "MB")
    start = row.figure("start", "s")
    made = row.figure("streams created per second")
    flushed = row.figure("last flush", "s")

    def once(kind: Kind) -> None:
        with scratch_folder() as folder:
            with started(kind.with_settings(cold__max_hot_bytes="4GiB"), folder / "data") as server:
                begun = time.perf_counter()
                send_all(server, (_stream(server, number) for number in range(streams)))
                between = time.perf_counter()
                ask(server, "POST", "/cluster/flush", FLUSH_SECONDS_MAX)
                made.add(NAME, streams / (between - begun))
                flushed.add(NAME, time.perf_counter() - between)
            with started(kind, folder / "data", START_SECONDS_MAX) as server:
                start.add(NAME, server.ready_seconds)
                memory.add(NAME, settled(server.process) / 1e6)
                ask(server, "HEAD", server.path(f"s{streams - 1}"))

    plan.at_most(1).interleave(row, (OURS,), once)
    row.value_at_most(memory, 1000)
    row.value_at_most(start, 60)
    return [row]


def _stream(server: Server, number: int) -> Request:
    producer = {"Producer-Id": f"producer-{number}", "Producer-Epoch": "0", "Producer-Seq": "0"}
    return Request("PUT", server.path(f"s{number}"), MESSAGE, OCTETS | producer)
