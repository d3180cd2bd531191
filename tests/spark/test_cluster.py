"""From one bucket through Spark into another, on a real cluster with a store in S3: every row once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.http.staged import ingest, stage
from tests.http.wire import content
from tests.server import Server
from tests.spark.conftest import SHORT_LIVED, stop_session
from tests.spark.standalone import Standalone

import ursula.spark
from ursula.pipeline import compact, verify
from ursula.spark.options import S3Options

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.task.maxFailures": "8",
}
STREAMS, ROUNDS, PER_ROUND = 7, 6, 500


@pytest.fixture(scope="module")
def server(server_in_s3: Server) -> Server:
    return server_in_s3


@pytest.fixture(scope="module")
def api(api_in_s3: httpx.Client) -> httpx.Client:
    return api_in_s3


@pytest.fixture(scope="module")
def cluster(no_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def session(cluster: Standalone) -> Iterator[SparkSession]:
    spark = ursula.spark.session(cluster.master, SETTINGS)
    yield spark
    spark.stop()


def fill(api: httpx.Client, bucket: str) -> dict[str, bytes]:
    """Write rows to several segments and to memory; returns the contents of each stream."""
    api.put(f"/{bucket}").raise_for_status()
    api.put(f"/{bucket}-out").raise_for_status()
    expected = {f"s{number}": b"" for number in range(STREAMS)}
    for turn in range(ROUNDS):
        numbers = range(turn * PER_ROUND, (turn + 1) * PER_ROUND)
        rows = [(f"s{number % STREAMS}", b"%06d;" % number) for number in numbers]
        for stream, value in rows:
            expected[stream] += value
        assert ingest(api, bucket, turn, [stage(api, bucket, rows)]).status_code == 200
        if turn < ROUNDS - 1:
            api.post("/cluster/flush").raise_for_status()
    return expected


def sorted_messages(data: bytes) -> list[bytes]:
    return sorted(data.split(b";")[:-1])


def test_every_row_arrives_once_though_executors_are_killed(
    api: httpx.Client,
    server: Server,
    cluster: Standalone,
    session: SparkSession,
    read_in_s3: dict[str, str],
    tmp_path: Path,
) -> None:
    expected = fill(api, "events")
    source = session.readStream.format("ursula").options(
        **read_in_s3, bucket="events", startingOffsets="earliest"
    )
    rows = source.option("maxMessagesPerTrigger", PER_ROUND).load().select("stream", "value")
    query = (
        rows.repartition(3)
        .writeStream.format("ursula")
        .options(endpoint=server.url, bucket="events-out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    def disturb() -> None:
        for _ in range(2):
            cluster.kill_executor()
            query.awaitTermination(5)

    with_trouble = threading.Thread(target=disturb)
    with_trouble.start()
    query.awaitTermination()
    with_trouble.join()
    assert query.exception() is None
    assert len(query.recentProgress) >= ROUNDS - 1
    for stream, whole in expected.items():
        assert sorted_messages(content(api, f"/events-out/{stream}")) == sorted_messages(whole)


def test_jobs_run_on_the_cluster_too(
    api: httpx.Client, server: Server, session: SparkSession, read_in_s3: dict[str, str], s3: S3Options
) -> None:
    expected = fill(api, "jobs-in")
    table = session.read.format("ursula").options(**read_in_s3, bucket="jobs-in").load()
    assert table.count() == ROUNDS * PER_ROUND
    before = len(api.get("/cluster/plan", params={"bucket": "jobs-in"}).json()["segments"])
    done = compact(session, server.url, s3=s3)
    assert done.runs > 0
    assert done.segments_after < before
    for stream, whole in expected.items():
        assert content(api, f"/jobs-in/{stream}") == whole
    api.post("/cluster/flush").raise_for_status()
    checked = verify(session, "s3://tables/of/ours", s3=s3)
    assert checked.damages == []
    assert checked.extent.segments >= done.segments_after


def test_two_attempts_of_a_task_at_once_write_once(
    api: httpx.Client, server: Server, cluster: Standalone
) -> None:
    stop_session()
    api.put("/attempts").raise_for_status()
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.0",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.efficiency.enabled": "false",
    }
    spark = ursula.spark.session(cluster.master, SETTINGS | speculation)
    try:

        def slow_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import time

            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            for batch in batches:
                if context.partitionId() == 1 and context.attemptNumber() == 0:
                    time.sleep(30)
                yield batch

        rows = spark.range(0, 1000, 1, 2).selectExpr(
            "concat('s', id % 5) AS stream", "cast(concat(id, ';') AS binary) AS value"
        )
        slow = rows.mapInArrow(slow_at_first, "stream string, value binary")
        slow.write.format("ursula").options(endpoint=server.url, bucket="attempts").mode("append").save()
    finally:
        spark.stop()
    found = [value for n in range(5) for value in content(api, f"/attempts/s{n}").split(b";")[:-1]]
    assert sorted(map(int, found)) == list(range(1000))
