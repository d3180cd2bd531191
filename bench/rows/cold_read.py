"""Reading a long stream that is no longer in memory, from local files and from object storage."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from .. import object_storage
from ..client import read_speed
from ..cold import NEVER_FLUSHED, UNCACHED, flush
from ..long_stream import MESSAGE_BYTES, NAME, STREAM_BYTES, LongStream
from ..results import OURS, Row
from ..rounds import Plan
from ..servers import Kind, Server, started

ROUNDS_MAX = 3

_WORK = f"catch-up of a cold {STREAM_BYTES >> 20} MiB stream by one client, 1 MiB a request"


def measure(plan: Plan) -> list[Row]:
    """Megabytes per second of one reader: against a read from memory, and against the objects as they are."""
    stream = LongStream()
    return [_local(plan.at_most(ROUNDS_MAX), stream), _stored(plan.at_most(ROUNDS_MAX), stream)]


def _local(plan: Plan, stream: LongStream) -> Row:
    row = Row("cold-read", f"{_WORK}, local files")
    row.note(f"{MESSAGE_BYTES >> 10} KiB appends of random bytes; nothing is cached but pages of the system")
    cold = row.figure("read, cold", "MB/s")
    hot = row.figure("read, hot", "MB/s")

    def once(kind: Kind) -> None:
        with _written(NEVER_FLUSHED, stream) as server:
            hot.add(OURS, _speed(server, stream, plan.seconds))
        with _written(kind, stream) as server:
            flush(server)
            cold.add(OURS, _speed(server, stream, plan.seconds))

    plan.interleave(row, (UNCACHED,), once)
    row.growth_at_least(cold, 0.4, hot, "hot")
    return row


def _stored(plan: Plan, stream: LongStream) -> Row:
    row = Row("cold-read", f"{_WORK}, SeaweedFS")
    if reason := object_storage.missing():
        row.note(f"not measured: {reason}")
        return row
    cold = row.figure("read, cold", "MB/s")
    raw = row.figure("the same objects, whole, by obstore", "MB/s")

    def once(kind: Kind) -> None:
        with (
            object_storage.seaweed() as storage,
            _written(object_storage.stored_there(kind, storage, "cold"), stream) as server,
        ):
            flush(server)
            cold.add(OURS, _speed(server, stream, plan.seconds))
            raw.add(OURS, object_storage.raw_megabytes_per_second(storage, "cold", plan.seconds))

    plan.interleave(row, (UNCACHED,), once)
    row.growth_at_least(cold, 0.5, raw, "the objects")
    return row


@contextmanager
def _written(kind: Kind, stream: LongStream) -> Iterator[Server]:
    with started(kind) as server:
        stream.write(server)
        yield server


def _speed(server: Server, stream: LongStream, seconds: float) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        stream.expect(connection, server)
        return read_speed(connection, server.path(NAME), seconds).megabytes_per_second
    finally:
        connection.close()
