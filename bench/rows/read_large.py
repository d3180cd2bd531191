"""Reading a long stream from its beginning to its end."""

import hashlib
import http.client
import random

from ..client import append_in_order, read_speed, read_whole
from ..failure import Failed
from ..results import Row
from ..rounds import Plan
from ..servers import ELECTRIC, OURS, REFERENCE_MEMORY, Kind, started

STREAM_BYTES = 64 << 20
MESSAGE_BYTES = 16 << 10


def measure(plan: Plan) -> list[Row]:
    """Megabytes per second of one reader."""
    row = Row("catch-up", "catch-up of a 64 MiB stream by one client")
    row.note(f"the stream consists of {MESSAGE_BYTES >> 10} KiB appends; an untimed first read checks it")
    speed = row.figure("read", "MB/s")
    requests = row.figure("requests for the whole stream", drawn=False)
    content = random.Random(1).randbytes(STREAM_BYTES)
    digest = hashlib.sha256(content).hexdigest()
    messages = [content[at : at + MESSAGE_BYTES] for at in range(0, STREAM_BYTES, MESSAGE_BYTES)]

    def once(kind: Kind) -> None:
        with started(kind) as server:
            append_in_order(server, "long", messages)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            path = server.path("long")
            whole = read_whole(connection, path, digest=True)
            if whole.digest != digest:
                raise Failed(
                    f"the stream that was read is not the one that was written ({whole.bytes} bytes)"
                )
            speed.add(kind.name, read_speed(connection, path, plan.seconds).megabytes_per_second)
            requests.add(kind.name, whole.requests)
            connection.close()

    plan.interleave(row, (OURS, REFERENCE_MEMORY, ELECTRIC), once)
    row.at_least(speed, 1.5, REFERENCE_MEMORY.name, REFERENCE_MEMORY.label)
    row.report(speed, ELECTRIC.name, ELECTRIC.label)
    return [row]
