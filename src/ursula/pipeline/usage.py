"""`usage`: how many messages and bytes each bucket received on each day, and in how many streams."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from ..engine.offline.verify import Progress
from ..spark.executor_store import ExecutorStore
from ..spark.http_client import ServerClient
from ..spark.options import OptionError, S3Options
from ..spark.tasks.segment_usage import USAGE_SCHEMA, count_segments
from .progress import no_step_progress, report_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4


class Used(NamedTuple):
    """The data that a bucket received on a day; `streams` counts the streams that received any."""

    bucket: str
    day: date
    messages: int
    bytes: int
    streams: int


@dataclass
class Usage:
    """The result of a job; with `dry_run`, only how much it would read."""

    dry_run: bool
    segments: int
    bytes_read: int
    used: list[Used] = field(default_factory=list)


def usage(
    spark: "SparkSession",
    endpoint: str | None = None,
    *,
    path: str | None = None,
    s3: S3Options | None = None,
    bucket: str | None = None,
    dry_run: bool = False,
    retry_seconds: float = 120.0,
    auth: str | None = None,
    progress: Progress = no_step_progress,
) -> Usage:
    """Count the history of all buckets, or of one: of a server, or of a store without its server."""
    s3 = s3 or S3Options()
    store = ExecutorStore(_root(endpoint, path, dry_run, retry_seconds, auth), s3)
    segments = [segment for live in store.all_live() for segment in live["segments"]]
    report = Usage(dry_run, len(segments), sum(segment["bytes"] for segment in segments))
    if segments and not dry_run:
        paths = [(segment["path"],) for segment in segments]
        with report_tasks(spark, ("counting", "adding up"), progress):
            report.used = list(_used(spark, store.root, s3, paths, bucket))
    return report


def _root(
    endpoint: str | None, path: str | None, dry_run: bool, retry_seconds: float, auth: str | None
) -> str:
    if endpoint is None:
        if path is None:
            raise OptionError("a server or the root of its store is needed: give endpoint or path")
        return path
    server = ServerClient(endpoint.rstrip("/"), retry_seconds, auth)
    if not dry_run:
        server.flush()  # so that hot messages are counted too
    return path or server.store_root()


def _used(
    spark: "SparkSession", root: str, s3: S3Options, paths: list[tuple[str]], bucket: str | None
) -> Iterator[Used]:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    def count(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return count_segments(root, s3, batches)

    tasks = min(len(paths), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    named = spark.createDataFrame(spark.sparkContext.parallelize(paths, tasks), "path string")
    counted = named.mapInArrow(count, from_arrow_schema(USAGE_SCHEMA))
    if bucket is not None:
        counted = counted.where(f.col("bucket") == bucket)
    table = (
        counted.groupBy("bucket", "day")
        .agg(
            f.sum("messages").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.countDistinct("stream", "incarnation").alias("streams"),
        )
        .orderBy("bucket", "day")
    )
    for row in table.collect():
        yield Used(row["bucket"], row["day"], row["messages"], row["bytes"], row["streams"])
