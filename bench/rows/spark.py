"""Spark on a bucket of JSON events in local segments: scans, the sink, and jobs."""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client import Request, get, send_all
from ..events import Events
from ..results import OURS as NAME
from ..results import Row
from ..rounds import Plan
from ..servers import OURS, Kind, Server, scratch_folder, started
from ..spark_events import BUCKET, SCANS, SESSION, STREAMS, compare_scans, fill, title, total, total_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINK_ROWS = 300_000
APPENDS = 3_000

JSON = {"Content-Type": "application/json"}


def measure(plan: Plan) -> list[Row]:
    """Megabytes of messages per second, and messages per second; medians of several scans after one."""
    scans, jobs = Row("spark", title(plan, "scanned by Spark")), Row("spark", title(plan, "jobs of Spark"))
    scans.note(f"local[2], on the same machine as the server; one warm-up scan, then the median of {SCANS}")
    jobs.note("one run each; MB of messages before compression")

    def once(kind: Kind) -> None:
        import ursula.spark

        with scratch_folder() as folder, started(kind, folder / "data") as server:
            size = fill(server, total_bytes(plan))
            spark = ursula.spark.session("local[2]", SESSION)
            try:
                _scan(scans, spark, server, size / 1e6)
                _sink(jobs, spark, server)
                _jobs(jobs, spark, server, folder, size / 1e6)
            finally:
                spark.stop()

    plan.at_most(1).interleave(scans, (OURS,), once)
    return [scans, jobs]


def _scan(row: Row, spark: "SparkSession", server: Server, megabytes: float) -> None:
    import ursula.spark

    plan = get(server, f"/cluster/plan?bucket={BUCKET}").json()
    files = [f"{plan['root']}/{segment['path']}" for segment in plan["segments"]]
    options = {"endpoint": server.url, "bucket": BUCKET}
    ways = {
        "Spark's own scan of the files": lambda: total(
            spark.read.parquet(*files).where("kind = 'append'"), "payload"
        ),
        "ursula.spark.read": lambda: total(ursula.spark.read(spark, **options), "value"),
        'format("ursula")': lambda: total(spark.read.format("ursula").options(**options).load(), "value"),
    }
    base, native, ours = compare_scans(row, megabytes, ways)
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
