"""Spark on a bucket of JSON events in local segments: scans, the sink, and jobs."""

import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..client import Request, get, send_all
from ..cold import flush, rest
from ..events import Events
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, scratch_folder, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "events"
STREAMS = 200
TOTAL_BYTES = 1 << 30
QUICK_BYTES = 64 << 20
POOL_BYTES = 32 << 20
"""So many different events there are; then they come again, further apart than anything compresses over."""
STAGED_BYTES = 64 << 20
SCANS = 5
SINK_ROWS = 300_000
APPENDS = 3_000

JSON = {"Content-Type": "application/json"}


def measure(plan: Plan) -> list[Row]:
    """Megabytes of messages per second, and messages per second; medians of several scans after one."""
    scans, jobs = Row("spark", _title(plan, "scanned by Spark")), Row("spark", _title(plan, "jobs of Spark"))
    scans.note(f"local[2], one process with the server; one warm-up, then the median of {SCANS}")
    jobs.note("one run each; megabytes of messages, before compression")

    def once(kind: Kind) -> None:
        import ursula.spark

        with scratch_folder() as folder, started(kind, folder / "data") as server:
            size = _fill(server, QUICK_BYTES if plan.is_quick else TOTAL_BYTES)
            spark = ursula.spark.session("local[2]", {"spark.sql.shuffle.partitions": "2"})
            try:
                _scan(scans, spark, server, folder, size / 1e6)
                _sink(jobs, spark, server)
                _jobs(jobs, spark, server, folder, size / 1e6)
            finally:
                spark.stop()

    plan.at_most(1).interleave(scans, (OURS,), once)
    return [scans, jobs]


def _title(plan: Plan, what: str) -> str:
    size = QUICK_BYTES if plan.is_quick else TOTAL_BYTES
    return f"{size >> 20:,} MiB of JSON events in {STREAMS} streams, {what}"


def _fill(server: Server, wanted: int) -> int:
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
        if staged >= STAGED_BYTES or size >= wanted:
            _ingest(server, version, rows)
            version, rows, staged = version + 1, [], 0
        if size >= wanted:
            break
    flush(server)
    rest(server)
    return size


def _pool() -> Iterator[bytes]:
    each = POOL_BYTES // 64
    for number in range(64):
        size = 0
        for event in Events(number):
            yield event
            size += len(event)
            if size >= each:
                break


def _ingest(server: Server, version: int, rows: list[tuple[str, bytes]]) -> None:
    from ursula.spark.sink import ingest, stage
    from ursula.spark.write_options import WriteOptions

    options = WriteOptions(server.url, BUCKET, content_type="application/json")
    streams, values = zip(*rows, strict=True)
    table = pa.table({"stream": pa.array(streams), "value": pa.array(values, pa.binary())})
    ingest(options, "fill", version, stage(options, table.to_batches(max_chunksize=10_000)))


def _scan(row: Row, spark: "SparkSession", server: Server, folder: Path, megabytes: float) -> None:
    from pyspark.sql import functions as f

    import ursula.spark

    plan = get(server, f"/cluster/plan?bucket={BUCKET}").json()
    files = [f"{plan['root']}/{segment['path']}" for segment in plan["segments"]]
    options = {"endpoint": server.url, "bucket": BUCKET}

    def told(frame: Any, column: str) -> Any:
        return frame.agg(f.count("*"), f.sum(f.length(column))).collect()[0]

    ways: dict[str, Callable[[], Any]] = {
        "Spark's own scan of the files": lambda: told(
            spark.read.parquet(*files).where("kind = 'append'"), "payload"
        ),
        "ursula.spark.read": lambda: told(ursula.spark.read(spark, **options), "value"),
        'format("ursula")': lambda: told(spark.read.format("ursula").options(**options).load(), "value"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    answers = {name: way() for name, way in ways.items()}  # the warm-up
    if len(set(map(tuple, answers.values()))) != 1:
        raise OSError(f"the ways to read do not have the same rows: {answers}")
    for _ in range(SCANS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begun)
    figures = {name: row.figure(name, "MB/s") for name in ways}
    for name, taken in seconds.items():
        figures[name].add(NAME, megabytes / median(taken))
    base, native, ours = figures.values()
    row.growth_at_least(native, 0.9, base, "Spark's own")
    row.growth_at_least(ours, 0.5, base, "Spark's own")


def _sink(row: Row, spark: "SparkSession", server: Server) -> None:
    """Messages per second of a batch write, against appends one by one."""
    sink = row.figure("sink", "messages/s")
    single = row.figure("appends one by one, 16 connections", "messages/s")
    send_all(server, [Request("PUT", "/sunk-events")])
    events = [event.decode() for event in islice(Events(1), 1000)]
    texts = spark.createDataFrame(
        [(number, event) for number, event in enumerate(events)], "n int, value string"
    )
    rows = spark.range(SINK_ROWS // len(events)).crossJoin(texts)
    table = rows.selectExpr(f"concat('s', id % {STREAMS}) AS stream", "value").repartition(2).cache()
    count = table.count()
    options = {"endpoint": server.url, "bucket": "sunk-events", "contentType": "application/json"}
    begun = time.perf_counter()
    table.write.format("ursula").options(**options).mode("append").save()
    sink.add(NAME, count / (time.perf_counter() - begun))
    table.unpersist()
    paths = [f"/sunk-events/s{number % STREAMS}" for number in range(APPENDS)]
    appends = [Request("POST", path, events[0].encode(), JSON) for path in paths]
    begun = time.perf_counter()
    send_all(server, appends, connections=16, depth=1)
    single.add(NAME, APPENDS / (time.perf_counter() - begun))
    row.growth_at_least(sink, 5, single, "one by one")


def _count(state: int | None, messages: list[Any]) -> int:
    return (state or 0) + len(messages)


def _jobs(row: Row, spark: "SparkSession", server: Server, folder: Path, megabytes: float) -> None:
    from ursula.pipeline import compact, export, materialize

    options = {"endpoint": server.url, "bucket": BUCKET}
    work: dict[str, Callable[[], Any]] = {
        "materialize": lambda: materialize(spark, str(folder / "states"), options, _count),
        "export": lambda: export(spark, str(folder / "lake"), options),
        "compact": lambda: compact(spark, server.url),
    }
    figures = {name: row.figure(name, "MB/s") for name in work}
    for name, job in work.items():
        begun = time.perf_counter()
        job()
        figures[name].add(NAME, megabytes / (time.perf_counter() - begun))
    row.value_at_least(figures["materialize"], 20)
