"""Reading a long stream that is no longer in memory, from local files and from object storage."""

import http.client

from .. import object_storage
from ..client import read_speed
from ..cold import NEVER_FLUSHED, UNCACHED, flush, rest
from ..long_stream import MESSAGE_BYTES, NAME, STREAM_BYTES, LongStream
from ..results import OURS, Row
from ..rounds import Plan
from ..servers import Kind, Server, scratch_folder, started

ROUNDS_MAX = 3
SMALL_CACHE = "32MiB"
"""Of so long a stream hardly anything is left in it when the next read begins."""

_WORK = f"catch-up of a cold {STREAM_BYTES >> 20} MiB stream by one client, 1 MiB a request"


def measure(plan: Plan) -> list[Row]:
    """Megabytes per second of one reader: against a read from memory, and against the objects as they are."""
    stream = LongStream()
    return [_local(plan.at_most(ROUNDS_MAX), stream), _stored(plan.at_most(ROUNDS_MAX), stream)]


def _local(plan: Plan, stream: LongStream) -> Row:
    row = Row("cold-read", f"{_WORK}, local files")
    row.note(
        f"{MESSAGE_BYTES >> 10} KiB appends of random bytes; with a small cache the server prefetches, "
        "but still fetches nearly everything; the page cache is warm"
    )
    cold = row.figure("read, cold, no cache", "MB/s")
    ahead = row.figure(f"read, cold, a cache of {SMALL_CACHE}", "MB/s")
    hot = row.figure("read, hot", "MB/s")

    def once(kind: Kind) -> None:
        with started(NEVER_FLUSHED) as server:
            stream.write(server)
            hot.add(OURS, _speed(server, stream, plan.seconds))
        with scratch_folder() as folder:
            with started(kind, folder / "data") as server:
                stream.write(server)
                flush(server)
                rest(server)
                cold.add(OURS, _speed(server, stream, plan.seconds))
            with started(kind.with_settings(cold__cache_bytes=SMALL_CACHE), folder / "data") as server:
                ahead.add(OURS, _speed(server, stream, plan.seconds))

    plan.interleave(row, (UNCACHED,), once)
    row.growth_at_least(ahead, 0.4, hot, "hot")
    return row


def _stored(plan: Plan, stream: LongStream) -> Row:
    row = Row("cold-read", f"{_WORK}, SeaweedFS")
    if reason := object_storage.missing():
        row.note(f"not measured: {reason}")
        return row
    row.note(f"SeaweedFS is on the same machine, and the cache is {SMALL_CACHE}")
    cold = row.figure("read, cold", "MB/s")
    raw = row.figure("the same objects, whole, with obstore", "MB/s")

    def once(kind: Kind) -> None:
        with (
            object_storage.seaweed() as storage,
            started(object_storage.stored_there(kind, storage, "cold")) as server,
        ):
            stream.write(server)
            flush(server)
            rest(server)
            cold.add(OURS, _speed(server, stream, plan.seconds))
            raw.add(OURS, object_storage.raw_megabytes_per_second(storage, "cold", plan.seconds))

    plan.interleave(row, (UNCACHED.with_settings(cold__cache_bytes=SMALL_CACHE),), once)
    row.growth_at_least(cold, 0.5, raw, "the objects")
    return row


def _speed(server: Server, stream: LongStream, seconds: float) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        stream.expect(connection, server)
        return read_speed(connection, server.path(NAME), seconds).megabytes_per_second
    finally:
        connection.close()
