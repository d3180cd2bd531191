"""One file per row of the table: what is measured, with whom, and what is asked."""

from collections.abc import Callable
from typing import NamedTuple

from .. import object_storage
from ..load import ursula_bench_missing, wrk_missing
from ..results import Row
from ..rounds import Plan
from . import (
    append,
    batch,
    bootstrap,
    cluster_append,
    cluster_failure,
    cluster_read,
    cluster_sse,
    cluster_start,
    cold_memory,
    cold_random,
    cold_read,
    fan_out,
    feed,
    feed_live,
    flush,
    growth,
    idle_memory,
    idle_million,
    idle_sse,
    listing,
    many_streams,
    multi_stream,
    read_large,
    read_small,
    replay,
    spark,
    spark_s3,
    spark_streaming,
    stored_size,
)


class Work(NamedTuple):
    """A kind of work, by the name it has on the command line."""

    measure: Callable[[Plan], list[Row]]
    missing: Callable[[], str | None] = lambda: None
    """Why it cannot be measured here."""


ROWS: dict[str, Work] = {
    "append": Work(append.measure, wrk_missing),
    "multi-stream": Work(multi_stream.measure, ursula_bench_missing),
    "read": Work(read_small.measure, wrk_missing),
    "catch-up": Work(read_large.measure),
    "sse": Work(fan_out.measure, ursula_bench_missing),
    "idle-sse": Work(idle_sse.measure),
    "many-streams": Work(many_streams.measure, wrk_missing),
    "memory": Work(idle_memory.measure),
    "start": Work(replay.measure),
    "growth": Work(growth.measure, wrk_missing),
    "batch": Work(batch.measure, wrk_missing),
    "bootstrap": Work(bootstrap.measure),
    "listing": Work(listing.measure, wrk_missing),
    "feed": Work(feed.measure),
    "feed-live": Work(feed_live.measure, wrk_missing),
    "flush": Work(flush.measure, wrk_missing),
    "cold-read": Work(cold_read.measure),
    "cold-random": Work(cold_random.measure),
    "cold-memory": Work(cold_memory.measure),
    "idle-million": Work(idle_million.measure),
    "stored-size": Work(stored_size.measure),
    "spark": Work(spark.measure),
    "spark-s3": Work(spark_s3.measure, object_storage.missing),
    "spark-streaming": Work(spark_streaming.measure, wrk_missing),
    "cluster-append": Work(cluster_append.measure, ursula_bench_missing),
    "cluster-read": Work(cluster_read.measure, wrk_missing),
    "cluster-sse": Work(cluster_sse.measure),
    "cluster-failure": Work(cluster_failure.measure),
    "cluster-start": Work(cluster_start.measure, wrk_missing),
}
