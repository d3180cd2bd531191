"""Writing from Spark: every row is appended exactly once, whatever is retried."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.http.wire import JSON, TEXT, content, make
from tests.server import Server

from ursula.spark.options import OptionError
from ursula.spark.writes.bulk_write import ingest, stage
from ursula.spark.writes.options import parse_write_options
from ursula.spark.writes.writers import BucketStreamWriter, BucketWriter, StagedRows

ROWS = [(f"s{number % 3}", f"{number:04d};".encode()) for number in range(300)]
SCHEMA = "stream string, value binary"
FAILED = (AnalysisException, PythonException)


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    return name


@pytest.fixture
def options(server: Server, bucket: str) -> dict[str, str]:
    return {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20"}


def struct(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


def save(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("ursula").options(**options, **more).mode("append").save()


def messages(api: httpx.Client, bucket: str) -> list[tuple[str, bytes]]:
    """The messages of all streams."""
    found = []
    for listed in api.get(f"/{bucket}/streams").json()["streams"]:
        name = listed["stream_id"]
        found += [(name, value + b";") for value in content(api, f"/{bucket}/{name}").split(b";")[:-1]]
    return found


def test_every_row_is_an_append(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    save(spark.createDataFrame(ROWS, SCHEMA).repartition(4), options, contentType="text/plain")
    assert sorted(messages(api, bucket)) == sorted(ROWS)
    assert api.head(f"/{bucket}/s0").headers["content-type"] == "text/plain"
    save(spark.createDataFrame(ROWS[:3], SCHEMA), options)
    assert sorted(messages(api, bucket)) == sorted(ROWS + ROWS[:3]), "two writes are two writes"


def test_rows_come_in_the_order_that_is_asked_for(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    rows = [(f"s{number % 2}", f"{number:03d};", number) for number in range(200)]
    frame = spark.createDataFrame(rows[::-1], "stream string, value string, number int")
    save(frame.repartition(3, "stream"), options, orderBy="number")
    for name in ("s0", "s1"):
        expected = "".join(value for stream, value, _ in rows if stream == name)
        assert content(api, f"/{bucket}/{name}") == expected.encode()


def test_types_by_row(spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]) -> None:
    make(api, f"/{bucket}/there", JSON)
    rows = [("there", '{"a":1}', None), ("new", "[1,2]", "application/json"), ("text", "x", "text/plain")]
    save(spark.createDataFrame(rows, "stream string, value string, content_type string"), options)
    assert json.loads(content(api, f"/{bucket}/there")) == [{"a": 1}]
    assert json.loads(content(api, f"/{bucket}/new")) == [1, 2]
    assert content(api, f"/{bucket}/text") == b"x"


def test_a_transaction_of_the_user_is_done_once(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    for partitions in (1, 3):
        save(frame.repartition(partitions), options, txnAppId="nightly", txnVersion="4")
    assert sorted(messages(api, bucket)) == sorted(ROWS)
    save(frame.limit(1), options, txnAppId="nightly", txnVersion="5")
    assert len(messages(api, bucket)) == len(ROWS) + 1
    with pytest.raises(FAILED, match="ingest_outdated"):
        save(frame, options, txnAppId="nightly", txnVersion="4")


def test_a_refused_row_fails_the_write_or_is_dropped(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    make(api, f"/{bucket}/closed", TEXT | {"stream-closed": "true"})
    rows = [("closed", b"late"), ("open", b"1;")]
    with pytest.raises(FAILED, match=r"row 0 of .* was refused: the stream is closed"):
        save(spark.createDataFrame(rows, SCHEMA).coalesce(1), options)
    assert api.head(f"/{bucket}/open").status_code == 404
    save(spark.createDataFrame(rows, SCHEMA), options, onRefused="drop")
    assert content(api, f"/{bucket}/open") == b"1;"
    with pytest.raises(FAILED, match="there is no stream"):
        save(spark.createDataFrame([("nobody", b"1")], SCHEMA), options, createStreams="false")


class Stream:
    """A streaming query from files to the bucket, with a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options
        self._count = 0
        (folder / "in").mkdir()

    def feed(self, rows: list[tuple[str, bytes]]) -> None:
        """Rows for the next batch."""
        table = pa.table({"stream": [row[0] for row in rows], "value": [row[1] for row in rows]})
        pq.write_table(table, self._folder / f"{self._count}.parquet")
        os.rename(self._folder / f"{self._count}.parquet", self._folder / "in" / f"{self._count}.parquet")
        self._count += 1

    def run(self, partitions: int = 2, by: tuple[str, ...] = ()) -> None:
        """Write everything."""
        read = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        frame = read.parquet(str(self._folder / "in")).repartition(partitions, *by)
        query = (
            frame.writeStream.format("ursula")
            .options(**self._options, checkpointLocation=str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died after the commit of the sink and before Spark recorded it."""
        (self._folder / "checkpoint" / "commits" / str(batch)).unlink()
        (self._folder / "checkpoint" / "commits" / f".{batch}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> Stream:
    return Stream(spark, tmp_path, options)


def test_a_streaming_query_writes_each_row_once(stream: Stream, api: httpx.Client, bucket: str) -> None:
    stream.feed(ROWS[:100])
    stream.feed(ROWS[100:150])
    stream.run()
    assert sorted(messages(api, bucket)) == sorted(ROWS[:150])
    stream.feed(ROWS[150:])
    stream.run()
    assert sorted(messages(api, bucket)) == sorted(ROWS)


def test_a_batch_that_is_replayed_with_other_partitions_and_another_order_is_written_once(
    stream: Stream, api: httpx.Client, bucket: str
) -> None:
    stream.feed(ROWS[:200])
    stream.run(partitions=2)
    stream.forget_commit(0)
    stream.run(partitions=3, by=("value",))
    assert sorted(messages(api, bucket)) == sorted(ROWS[:200])
    stream.feed(ROWS[200:])
    stream.run(partitions=1)
    assert sorted(messages(api, bucket)) == sorted(ROWS)


def test_a_refused_row_ends_the_query(stream: Stream, api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/closed", TEXT | {"stream-closed": "true"})
    stream.feed([("closed", b"late")])
    with pytest.raises(StreamingQueryException, match="the stream is closed"):
        stream.run()


def test_a_commit_that_spark_does_not_know_of_is_retried(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    """Two attempts of a task, of which only one is committed, and a commit that is repeated."""
    wanted = parse_write_options(options)
    batch = pa.record_batch({"stream": ["a", "a"], "value": [b"1;", b"2;"]})
    first, second = (stage(wanted, iter([batch])) for _ in range(2))
    assert first != second
    for objects in (second, second, first):
        ingest(wanted, "query", 7, objects)
    assert messages(api, bucket) == [("a", b"1;"), ("a", b"2;")]


def test_a_task_stages_much_in_several_objects(
    monkeypatch: pytest.MonkeyPatch, api: httpx.Client, bucket: str, options: dict[str, str]
) -> None:
    monkeypatch.setattr("ursula.spark.writes.bulk_write.OBJECT_BYTES", 2000)
    wanted = parse_write_options(options)
    batch = pa.record_batch({"stream": ["a"] * 100, "value": [f"{n:050d};".encode() for n in range(100)]})
    objects = stage(wanted, [batch, batch])
    assert len(objects) > 4
    ingest(wanted, "query", 0, objects)
    assert content(api, f"/{bucket}/a") == b"".join(batch["value"].to_pylist()) * 2


def test_a_batch_without_tasks_is_nothing(options: dict[str, str]) -> None:
    BucketStreamWriter(parse_write_options(options), struct(SCHEMA)).commit([None], 3)


def test_rows_of_an_unknown_query_are_refused(options: dict[str, str]) -> None:
    writer = BucketStreamWriter(parse_write_options(options), struct(SCHEMA))
    for queries in ((None,), ("a", "b")):
        with pytest.raises(RuntimeError, match="which query"):
            writer.commit([StagedRows([], query) for query in queries], 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bucket": ""}, "bucket is needed"),
        ({"endpoint": ""}, "endpoint is needed"),
        ({"onRefused": "ignore"}, "onRefused must be fail or drop"),
        ({"createStreams": "yes"}, "createStreams must be true or false"),
        ({"txnAppId": "x"}, "go together"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "txnVersion must be a whole number"),
        ({"startingOffsets": "earliest"}, "there is no option startingOffsets"),
    ],
)
def test_wrong_options_say_what_to_write(options: dict[str, str], change: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_write_options(options | change)


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        ("value binary", {}, "the column stream is needed"),
        ("stream string", {}, "the column value is needed"),
        ("stream int, value binary", {}, "stream must be string, not int"),
        ("stream string, value int", {}, "value must be binary or string, not int"),
        ("stream string, value binary, more int", {}, "the column more cannot be written"),
        ("stream string, value binary", {"orderBy": "at"}, "orderBy names at"),
    ],
)
def test_tables_that_are_not_rows_to_append(
    options: dict[str, str], schema: str, more: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        BucketWriter(parse_write_options(options | more), struct(schema))


def test_what_cannot_be_done_says_so(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.createDataFrame(ROWS[:1], SCHEMA)
    with pytest.raises(FAILED, match='mode\\("append"\\)'):
        frame.write.format("ursula").options(**options).mode("overwrite").save()
    with pytest.raises(FAILED, match="there is no bucket"):
        save(frame, options | {"bucket": "nobody"})
    with pytest.raises(FAILED, match="no answer from"):
        save(frame, options | {"endpoint": "http://127.0.0.1:9", "retryTimeout": "0"})


def test_nulls_are_refused(spark: SparkSession, options: dict[str, str]) -> None:
    rows: list[Any] = [("a", None)]
    with pytest.raises(FAILED, match="has nulls"):
        save(spark.createDataFrame(rows, SCHEMA), options)
