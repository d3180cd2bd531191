"""Reading a little from anywhere in a long stream that is no longer in memory."""

import http.client
import random
import time
from statistics import quantiles

from ..cold import UNCACHED, fetched_bytes, flush
from ..failure import Failed
from ..long_stream import NAME, STREAM_BYTES, LongStream
from ..results import OURS, Row
from ..rounds import Plan
from ..servers import Kind, started

READ_BYTES = 64 << 10
READS_MIN = 200
ROUNDS_MAX = 3


def measure(plan: Plan) -> list[Row]:
    """What is fetched for one read, and how long it takes."""
    row = Row(
        "cold-random",
        f"random reads of {READ_BYTES >> 10} KiB of a cold {STREAM_BYTES >> 20} MiB stream, local files",
    )
    row.note("one client, no cache except the page cache; the target is about 1 MiB fetched per read")
    fetched = row.figure("fetched per read", "MiB")
    p50 = row.figure("p50", "ms")
    p99 = row.figure("p99", "ms")
    stream = LongStream()

    def once(kind: Kind) -> None:
        with started(kind) as server:
            stream.write(server)
            flush(server)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            stream.expect(connection, server)
            before = fetched_bytes(server)
            took = _read(connection, server.path(NAME), stream.content, plan.seconds)
            fetched.add(OURS, (fetched_bytes(server) - before) / len(took) / 2**20)
            percentiles = quantiles(took, n=100)
            p50.add(OURS, percentiles[49] * 1e3)
            p99.add(OURS, percentiles[98] * 1e3)
            connection.close()

    plan.at_most(ROUNDS_MAX).interleave(row, (UNCACHED,), once)
    row.value_at_most(fetched, 1.25)
    return [row]


def _read(connection: http.client.HTTPConnection, path: str, content: bytes, seconds: float) -> list[float]:
    """Read until the time is over; how long each read took."""
    draw = random.Random(2)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while len(took) < READS_MIN or time.perf_counter() < end:
        offset = draw.randrange(STREAM_BYTES - READ_BYTES)
        begun = time.perf_counter()
        connection.request("GET", f"{path}?offset={offset:020}&max_bytes={READ_BYTES}")
        response = connection.getresponse()
        body = response.read()
        took.append(time.perf_counter() - begun)
        if response.status != 200 or not body or content[offset : offset + len(body)] != body:
            raise Failed(f"{len(body)} bytes from {offset} are not what was written ({response.status})")
    return took
