"""A bucket of JSON events for Spark, written in bulk, and scans of it that are compared."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .client import Request, send_all
from .cold import flush, rest
from .events import Events
from .failure import Failed
from .results import OURS, Figure, Row
from .rounds import Plan
from .servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "events"
STREAMS = 200
SCANS = 5
SESSION = {"spark.sql.shuffle.partitions": "2"}

_TOTAL_BYTES = 1 << 30
_QUICK_BYTES = 64 << 20
_POOL_BYTES = 32 << 20
"""So many different events there are; then they come again, further apart than anything compresses over."""
_STAGED_BYTES = 64 << 20


def total_bytes(plan: Plan) -> int:
    """How many bytes of messages there are."""
    return _QUICK_BYTES if plan.is_quick else _TOTAL_BYTES


def title(plan: Plan, what: str) -> str:
    """What a row with these events is called."""
    return f"{total_bytes(plan) >> 20:,} MiB of JSON events in {STREAMS} streams, {what}"


def fill(server: Server, wanted: int) -> int:
    """Write events until there are so many bytes, and have all of them in the store; how many there are."""
    send_all(server, [Request("PUT", f"/{BUCKET}")])
    pool = list(_pool())
    size = version = 0
    rows: list[tuple[str, bytes]] = []
    staged = 0
    for number, event in enumerate(chain.from_iterable(repeat(pool))):
        rows.append((f"s{number % STREAMS}", event))
        staged += len(event)
        size += len(event)
        if staged >= _STAGED_BYTES or size >= wanted:
            ingest_rows(server, BUCKET, version, rows)
            version, rows, staged = version + 1, [], 0
        if size >= wanted:
            break
    flush(server)
    rest(server)
    return size


def _pool() -> Iterator[bytes]:
    each = _POOL_BYTES // 64
    for number in range(64):
        size = 0
        for event in Events(number):
            yield event
            size += len(event)
            if size >= each:
                break


def ingest_rows(server: Server, bucket: str, version: int, rows: Iterable[tuple[str, bytes]]) -> None:
    """Write messages to streams in one go; streams that are missing are made."""
    from ursula.spark.writes.bulk_write import ingest, stage
    from ursula.spark.writes.options import WriteOptions

    options = WriteOptions(server.url, bucket, content_type="application/json")
    streams, values = zip(*rows, strict=True)
    table = pa.table({"stream": pa.array(streams), "value": pa.array(values, pa.binary())})
    ingest(options, "fill", version, stage(options, table.to_batches(max_chunksize=10_000)))


def total(table: "DataFrame", column: str) -> tuple[Any, ...]:
    """How many rows a table has, and how many bytes one of its columns."""
    from pyspark.sql import functions as f

    return tuple(table.agg(f.count("*"), f.sum(f.length(column))).collect()[0])


def compare_scans(row: Row, megabytes: float, ways: Mapping[str, Callable[[], object]]) -> list[Figure]:
    """How fast each way is to have the same answer: in turns, the median of several after a first one."""
    answers = {way() for way in ways.values()}
    if len(answers) != 1:
        raise Failed(f"not every way to read has the same rows: {answers}")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(SCANS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begun)
    figures = [row.figure(name, "MB/s") for name in ways]
    for figure in figures:
        figure.add(OURS, megabytes / median(seconds[figure.name]))
    return figures
