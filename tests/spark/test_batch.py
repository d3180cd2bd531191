"""A bucket as a Spark table: the same rows as in its feed, wherever they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from tests.http.wire import TEXT, make, post
from tests.server import Server
from tests.spark.conftest import copied_store

from ursula.spark.options import OptionError
from ursula.spark.reads.options import parse_read_options
from ursula.spark.reads.partitions import partitions_of
from ursula.spark.reads.rows import read_partition, schema_of

Table = Callable[..., DataFrame]


@pytest.fixture
def table(spark: SparkSession, server: Server, bucket: str) -> Table:
    def load(schema: str | None = None, **more: str) -> DataFrame:
        options = {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20", **more}
        reader = spark.read.format("ursula").options(**options)
        return (reader if schema is None else reader.schema(schema)).load()

    return load


def feed(api: httpx.Client, bucket: str) -> list[dict[str, Any]]:
    """The feed of the bucket."""
    rows: list[dict[str, Any]] = []
    after = "-1"
    while True:
        answer = api.get(f"/{bucket}", params={"offset": after})
        assert answer.status_code == 200, answer.text
        rows += [json.loads(line) for line in answer.text.splitlines()]
        after = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return rows


def messages(frame: DataFrame) -> list[tuple[str, bytes]]:
    rows = frame.orderBy("position", "index").select("stream", "value").collect()
    return [(row.stream, bytes(row.value)) for row in rows]


ALL = [
    ("cold", b'{"n":0}'),
    ("cold", b'{"n":1}'),
    ("both", b"first"),
    ("hot", b'"now"'),
    ("both", b"second"),
]


def test_a_table_has_every_message_once(table: Table) -> None:
    frame = table()
    assert frame.columns[:5] == ["group", "bucket", "stream", "incarnation", "kind"]
    assert "event" not in frame.columns
    assert "producer_id" not in frame.columns
    assert messages(frame) == ALL


def test_a_table_is_whole_again_after_a_query_with_a_filter(table: Table) -> None:
    frame = table()
    assert {stream for stream, _ in messages(frame.where("stream = 'cold'"))} == {"cold"}
    assert messages(frame) == ALL
    assert frame.where("stream = 'hot'").union(frame.where("stream = 'cold'")).count() == 3


def test_events_and_producers_come_when_they_are_asked_for(
    api: httpx.Client, bucket: str, table: Table
) -> None:
    frame = table(includeEvents="true", includeProducer="TRUE").orderBy("position", "index", "kind")
    found = [row.asDict() for row in frame.collect()]
    expected = sorted(feed(api, bucket), key=lambda row: (row["position"], row["index"], row["kind"]))
    assert len(found) == len(expected)
    for row, entry in zip(found, expected, strict=True):
        for name in ("kind", "stream", "incarnation", "content_type", "index"):
            assert row[name] == entry[name]
        for name in ("position", "offset", "next_offset"):
            assert row[name] == int(entry[name])
        assert row["record"] == entry.get("record")
        assert row["bucket"] == bucket
        assert row["producer_id"] == (entry.get("producer") or {}).get("id")
        assert (None if row["event"] is None else json.loads(row["event"])) == entry.get("event")
    assert {row["kind"] for row in found} >= {"create", "append", "attributes"}


@pytest.mark.parametrize(
    ("options", "streams"),
    [
        ({"streams": '["hot","nobody","cold"]'}, ["cold", "hot"]),
        ({"streams": "[]"}, []),
        ({"streamPrefix": "co"}, ["cold"]),
        ({"streamPrefix": "x"}, []),
        ({"streamGlob": "*o*"}, ["both", "cold", "hot"]),
        ({"streamGlob": "?o?"}, ["hot"]),
        ({"streamGlob": "both"}, ["both"]),
    ],
)
def test_some_streams(table: Table, options: dict[str, str], streams: list[str]) -> None:
    rows = table(**options).select("stream").distinct().collect()
    assert sorted(row.stream for row in rows) == streams


def test_from_a_position_or_a_time_up_to_another(table: Table) -> None:
    rows = table().orderBy("position", "index").select("position", "appended_at", "value").collect()
    middle = rows[2].position
    later = messages(table(startingOffsets=str(middle)))
    earlier = messages(table(endingOffsets=f"{middle:020d}"))
    assert later == ALL[3:]
    assert earlier == ALL[:3]
    at = rows[3].appended_at
    milliseconds = str(int(at.timestamp() * 1000))
    since = messages(table(startingTimestamp=milliseconds))
    before = messages(table(endingTimestamp=milliseconds))
    assert since[-2:] == ALL[3:]
    assert sorted(since + before) == sorted(ALL)


def test_the_store_alone_is_enough_for_what_is_in_it(
    spark: SparkSession, server: Server, api: httpx.Client, bucket: str, table: Table
) -> None:
    root = api.get("/cluster/plan", params={"bucket": bucket}).json()["root"]
    reader = spark.read.format("ursula").option("path", root).option("bucket", bucket)
    assert messages(reader.load())[:3] == ALL[:3]


def test_a_schema_asks_for_some_columns(table: Table) -> None:
    frame = table("value binary, stream string")
    assert frame.columns == ["value", "stream"]
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(value for _, value in ALL)
    with pytest.raises(AnalysisException, match="there is no column payload"):
        table("payload binary").count()
    with pytest.raises(AnalysisException, match="the column value is a binary, not a string"):
        table("value string").count()


def test_an_empty_bucket_is_an_empty_table(api: httpx.Client, table: Table) -> None:
    api.put("/empty-table").raise_for_status()
    assert table(bucket="empty-table").count() == 0


def test_rows_of_a_file_that_is_gone_are_found_again(server: Server, api: httpx.Client, bucket: str) -> None:
    options = parse_read_options({"endpoint": server.url, "bucket": bucket})
    tasks = partitions_of(options)
    cold = [span for task in tasks for span in task.spans if span.path is not None]
    assert cold
    for task in tasks:
        task.spans = [
            span._replace(path=f"{span.path}-merged") if span in cold else span for span in task.spans
        ]
    names = schema_of(options).names
    batches = [batch for task in tasks for batch in read_partition(options, task, names)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row["position"], row["index"]))
    assert [(row["stream"], row["value"]) for row in rows] == ALL


def test_a_partition_reads_the_same_whatever_happens_meanwhile(
    server: Server, api: httpx.Client, bucket: str
) -> None:
    options = parse_read_options({"endpoint": server.url, "bucket": bucket})
    tasks = partitions_of(options)
    post(api, f"/{bucket}/both", b"third", TEXT)
    api.post("/cluster/flush").raise_for_status()
    post(api, f"/{bucket}/both", b"fourth", TEXT)
    batches = [batch for task in tasks for batch in read_partition(options, task, ["value"])]
    assert sorted(row["value"] for batch in batches for row in batch.to_pylist()) == sorted(
        value for _, value in ALL
    )


def test_a_bucket_that_was_created_again_has_nothing_of_the_old_one(
    server: Server, api: httpx.Client, path: str
) -> None:
    name = f"{path.rpartition('/')[2]}-again"
    for text in (b"old", b"new"):
        api.put(f"/{name}").raise_for_status()
        make(api, f"/{name}/a", TEXT, text)
        if text == b"old":
            api.delete(f"/{name}/a").raise_for_status()
            api.delete(f"/{name}").raise_for_status()
    api.post("/cluster/flush").raise_for_status()
    options = parse_read_options({"endpoint": server.url, "bucket": name})
    batches = [batch for task in partitions_of(options) for batch in read_partition(options, task, ["value"])]
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"new"]


def test_a_damaged_segment_is_an_error_that_names_it(
    spark: SparkSession, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    plan = api.get("/cluster/plan", params={"bucket": bucket}).json()
    root = copied_store(plan["root"], tmp_path / "store")
    damaged = root / plan["segments"][-1]["path"]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    frame = spark.read.format("ursula").options(path=str(root), bucket=bucket).load()
    with pytest.raises(PythonException, match=damaged.name):
        frame.count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "bucket is needed"),
        ({"bucket": "b"}, "one of the options endpoint"),
        (
            {"bucket": "b", "path": "p", "streems": "x"},
            "no option streems; the options are endpoint",
        ),
        ({"bucket": "b", "path": "p", "streams": "a,b"}, "JSON array of stream ids"),
        ({"bucket": "b", "path": "p", "streams": "[1]"}, "JSON array of stream ids"),
        (
            {"bucket": "b", "path": "p", "streams": "[]", "streamGlob": "*"},
            "one of streams and streamGlob",
        ),
        (
            {"bucket": "b", "path": "p", "startingOffsets": "latest"},
            "startingOffsets must be earliest or",
        ),
        ({"bucket": "b", "path": "p", "endingOffsets": "earliest"}, "endingOffsets must be latest or"),
        ({"bucket": "b", "path": "p", "endingOffsets": "-1"}, "endingOffsets must be latest or a position"),
        ({"bucket": "b", "path": "p", "startingTimestamp": "today"}, "a time in milliseconds"),
        ({"bucket": "b", "path": "p", "includeEvents": "yes"}, "includeEvents must be true or false"),
        ({"bucket": "b", "path": "p", "retryTimeout": "soon"}, "a number of seconds"),
        ({"bucket": "b", "path": "p", "retryTimeout": "nan"}, "a number of seconds"),
        ({"bucket": "b", "path": "p", "maxBytesPerTrigger": "9"}, "maxBytesPerTrigger is for readStream"),
        ({"bucket": "b", "path": "p", "maxMessagesPerTrigger": "9"}, "is for readStream: leave it out"),
        ({"bucket": "b", "path": "p", "failOnDataLoss": "true"}, "failOnDataLoss is for readStream"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_read_options(options)


def test_what_the_server_refuses_is_reported(table: Table, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="there is no bucket 'nobody-made-it'"):
        table(bucket="nobody-made-it").count()
    with pytest.raises(AnalysisException, match="endingOffsets 999999999999999999 is after"):
        table(endingOffsets="999999999999999999").count()
    with pytest.raises(AnalysisException, match="offset_beyond_tail"):
        table(startingOffsets="999999999999999999").count()
    with pytest.raises(AnalysisException, match=r"no answer from http://127\.0\.0\.1:1 for 0 s"):
        table(endpoint="http://127.0.0.1:1", retryTimeout="0").count()
    with pytest.raises(AnalysisException, match="there is no store at"):
        table(endpoint="", path=str(tmp_path)).count()
