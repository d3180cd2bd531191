"""Spark following a bucket that is written to, and planning over very many streams."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..client import Request, create_streams, send_all
from ..cold import flush
from ..failure import Failed
from ..load import paced_append_load
from ..results import OURS as NAME
from ..results import Row
from ..rounds import WARM_UP_SECONDS, Plan
from ..servers import OURS_BUCKETED, Kind, Server, scratch_folder, started
from ..spark_events import SESSION, ingest_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STREAMS = 100
CONNECTIONS = 128
RATE = 10_200
"""A little more than what is asked for, since wrk counts the time in which it connects."""
LOAD_SECONDS = 30
QUICK_SECONDS = 10
CATCH_UP_SECONDS_MAX = 120.0
MANY = 100_000
MANY_AT_ONCE = 20_000


def measure(plan: Plan) -> list[Row]:
    """Messages that a query gets while appends come in, and the seconds that a plan takes."""
    return [_followed(plan.at_most(1)), _planned(plan.at_most(1))]


def _followed(plan: Plan) -> Row:
    seconds = QUICK_SECONDS if plan.is_quick else LOAD_SECONDS
    row = Row("spark-streaming", f"durable append, 256 B, followed by a Spark query for {seconds} s")
    row.note("server, load and Spark (local[2]) share the cores; every message is counted at the end")
    appends = row.figure("appends/s")
    followed = row.figure("messages/s in the query, from the first append to the last message")
    behind = row.figure("time after the load until the query is up to date", "s")

    def once(kind: Kind) -> None:
        import ursula.spark

        with scratch_folder() as folder, started(kind, folder / "data") as server:
            create_streams(server, STREAMS)
            spark = ursula.spark.session("local[2]", SESSION)
            try:
                query = _follow(spark, server, folder)
                warm = paced_append_load(server, STREAMS, RATE, CONNECTIONS, 5 * WARM_UP_SECONDS)
                _await_rows(query, warm.answered)
                before = _row_count(query)
                begun = time.perf_counter()
                result = paced_append_load(server, STREAMS, RATE, CONNECTIONS, seconds)
                ended = time.perf_counter()
                _await_rows(query, before + result.answered)
                done = time.perf_counter()
                count = _row_count(query) - before
                query.stop()
            finally:
                spark.stop()
        appends.add(NAME, result.per_second)
        followed.add(NAME, count / (done - begun))
        behind.add(NAME, done - ended)

    plan.interleave(row, (OURS_BUCKETED,), once)
    row.value_at_least(appends, 10_000)
    row.growth_at_least(followed, 0.85, appends, "the appends")
    return row


def _follow(spark: "SparkSession", server: Server, folder: Path) -> "StreamingQuery":
    options = {"endpoint": server.url, "bucket": server.kind.bucket or "", "startingOffsets": "earliest"}
    messages = spark.readStream.format("ursula").options(**options).load()
    sink = messages.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(processingTime="1 second").start()


def _row_count(query: "StreamingQuery") -> int:
    return sum(batch.numInputRows for batch in query.recentProgress)


def _await_rows(query: "StreamingQuery", count: int) -> None:
    """Wait until the query has at least so many rows: what was not answered may have been stored too."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while _row_count(query) < count:
        if time.monotonic() > deadline or not query.isActive:
            raise Failed(f"the query has {_row_count(query):,} of {count:,} rows: {query.exception()}")
        time.sleep(0.05)


def _planned(plan: Plan) -> Row:
    row = Row("spark-streaming", f"plan of a query over {MANY:,} streams")
    row.note("the time until Spark has its tasks; all work per stream happens in the tasks")
    seconds = row.figure("plan", "s")

    def once(kind: Kind) -> None:
        from ursula.spark.reads.options import parse_read_options
        from ursula.spark.reads.partitions import partitions_of

        with started(kind) as server:
            send_all(server, [Request("PUT", "/many-streams")])
            for version, first in enumerate(range(0, MANY, MANY_AT_ONCE)):
                rows = ((f"s{number}", b"{}") for number in range(first, first + MANY_AT_ONCE))
                ingest_rows(server, "many-streams", version, rows)
            flush(server)
            begun = time.perf_counter()
            tasks = partitions_of(parse_read_options({"endpoint": server.url, "bucket": "many-streams"}))
            seconds.add(NAME, time.perf_counter() - begun)
            if sum(stretch.rows for task in tasks for stretch in task.spans) < MANY:
                raise Failed("the plan does not have all rows")

    plan.interleave(row, (OURS_BUCKETED,), once)
    row.value_at_most(seconds, 5)
    return row
