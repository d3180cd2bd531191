"""A bucket whose files Spark reads itself: the same rows as from the format, and less to read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from tests.http.wire import JSON, TEXT, make, post
from tests.server import Server
from tests.spark.conftest import copied_store

import ursula.spark
from ursula.spark.http_client import ServerRefused
from ursula.spark.options import OptionError, S3Options
from ursula.spark.reads.native_read import s3a_settings

Options = dict[str, str]
Read = Callable[..., DataFrame]

ORDER = ("position", "index", "kind", "stream")


@pytest.fixture
def options(server: Server, bucket: str) -> Options:
    return {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20"}


@pytest.fixture
def native(spark: SparkSession, options: Options) -> Read:
    def read(**more: str) -> DataFrame:
        return ursula.spark.read(spark, **{**options, **more})

    return read


@pytest.fixture
def by_format(spark: SparkSession, options: Options) -> Read:
    def read(**more: str) -> DataFrame:
        return spark.read.format("ursula").options(**{**options, **more}).load()

    return read


def rows(frame: DataFrame) -> list[Any]:
    return frame.orderBy(*ORDER).collect()


def streams(frame: DataFrame) -> list[str]:
    return sorted(row.stream for row in frame.select("stream").distinct().collect())


def plan_of(api: httpx.Client, bucket: str) -> dict[str, Any]:
    plan: dict[str, Any] = api.get("/cluster/plan", params={"bucket": bucket}).json()
    return plan


def test_the_table_is_that_of_the_format(native: Read, by_format: Read) -> None:
    for more in ({}, {"includeEvents": "true", "includeProducer": "true"}):
        frame, expected = native(**more), by_format(**more)
        assert frame.dtypes == expected.dtypes
        assert rows(frame) == rows(expected)
    assert streams(native()) == ["both", "cold", "hot"]


def test_the_same_options(native: Read, by_format: Read) -> None:
    everything = rows(by_format(includeEvents="true"))
    middle = everything[len(everything) // 2]
    milliseconds = str(int(middle.appended_at.timestamp() * 1000))
    for more in (
        {"streams": '["hot","nobody","cold"]'},
        {"streams": "[]"},
        {"streamPrefix": "co"},
        {"streamGlob": "*o*[!d]"},
        {"streamGlob": "both"},
        {"streamGlob": "[b[]o*"},
        {"startingOffsets": str(middle.position)},
        {"endingOffsets": str(middle.position), "includeEvents": "true"},
        {"startingOffsets": str(middle.position), "endingOffsets": str(middle.position)},
        {"startingTimestamp": milliseconds},
        {"endingTimestamp": milliseconds, "INCLUDEEVENTS": "true"},
    ):
        assert rows(native(**more)) == rows(by_format(**more)), more


def test_options_may_be_values_of_python(spark: SparkSession, options: Options) -> None:
    frame = ursula.spark.read(spark, **options, includeEvents=True, startingTimestamp=0)
    assert "event" in frame.columns
    assert streams(frame) == ["both", "cold", "hot"]


def test_the_same_errors(native: Read) -> None:
    with pytest.raises(OptionError, match="there is no option streems"):
        native(streems="x")
    with pytest.raises(OptionError, match=r"endingOffsets 9+ is after"):
        native(endingOffsets="999999999999999999")
    with pytest.raises(ServerRefused, match="there is no bucket 'nobody-made-it'"):
        native(bucket="nobody-made-it")


def test_an_empty_bucket_is_an_empty_table(api: httpx.Client, native: Read) -> None:
    api.put("/empty-native-table").raise_for_status()
    frame = native(bucket="empty-native-table")
    assert frame.count() == 0
    assert frame.columns == native().columns


def test_all_queries_of_a_table_see_the_same_whatever_happens_meanwhile(
    api: httpx.Client, bucket: str, native: Read
) -> None:
    frame = native()
    before = rows(frame)
    post(api, f"/{bucket}/both", b"third", TEXT)
    api.post("/cluster/flush").raise_for_status()
    post(api, f"/{bucket}/both", b"fourth", TEXT)
    assert rows(frame) == before
    assert rows(frame.where("stream = 'cold'")) == [row for row in before if row.stream == "cold"]
    assert rows(frame) == before
    assert len(rows(native())) == len(before) + 2


def test_the_store_alone_is_enough_for_what_is_in_it(
    spark: SparkSession, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    odd = tmp_path / "[a-b] {c} 50%20?*"
    copied_store(plan_of(api, bucket)["root"], odd)
    for path in (str(odd), f"file://{odd}/"):
        frame = ursula.spark.read(spark, path=path, bucket=bucket)
        assert streams(frame) == ["both", "cold"]
    assert ursula.spark.read(spark, path=str(odd), bucket="never-was").count() == 0


def test_a_session_that_knows_nothing_yet_will_do(spark: SparkSession, options: Options) -> None:
    assert streams(ursula.spark.read(spark.newSession(), **options)) == ["both", "cold", "hot"]


def test_damage_and_loss_are_errors_whatever_the_session_says(
    spark: SparkSession, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    plan = plan_of(api, bucket)
    root = copied_store(plan["root"], tmp_path / "store")
    frame = ursula.spark.read(spark, path=str(root), bucket=bucket)
    segment = root / plan["segments"][-1]["path"]
    careless = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    data = bytearray(segment.read_bytes())
    for name in careless:
        spark.conf.set(name, "true")
    try:
        data[60] ^= 1
        segment.write_bytes(data)
        with pytest.raises(Py4JJavaError, match=segment.name):
            frame.collect()
        segment.unlink()
        with pytest.raises(Py4JJavaError, match=segment.name):
            frame.collect()
    finally:
        for name in careless:
            spark.conf.unset(name)


def test_spark_reads_only_the_row_groups_that_it_needs(
    spark: SparkSession, server: Server, api: httpx.Client
) -> None:
    api.put("/native-groups").raise_for_status()
    messages = b"[" + b",".join(b'"%s"' % (b"x" * 1000) for _ in range(1500)) + b"]"
    for name in "abcd":
        make(api, f"/native-groups/{name}", JSON, messages)
    api.post("/cluster/flush").raise_for_status()
    frame = ursula.spark.read(spark, endpoint=server.url, bucket="native-groups")
    assert scanned(frame) >= 6000
    assert scanned(frame.where("stream = 'b'")) < 4000
    assert (
        scanned(ursula.spark.read(spark, endpoint=server.url, bucket="native-groups", streams='["b"]')) < 4000
    )


def scanned(frame: DataFrame) -> int:
    """How many rows Spark reads from Parquet, before it filters."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.collectToPython()
    leaves = plan.collectLeaves()
    return sum(leaves.apply(i).metrics().apply("numOutputRows").value() for i in range(leaves.size()))


def test_the_options_for_s3_are_passed_to_hadoop() -> None:
    assert s3a_settings(S3Options()) == {}
    assert s3a_settings(S3Options("http://127.0.0.1:1", "r", "id", "key", "token")) == {
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.endpoint.region": "r",
        "fs.s3a.access.key": "id",
        "fs.s3a.secret.key": "key",
        "fs.s3a.session.token": "token",
        "fs.s3a.path.style.access": "true",
    }


def test_rows_of_a_deleted_bucket_of_that_name_do_not_show(
    spark: SparkSession, server: Server, api: httpx.Client
) -> None:
    for text in (b"old", b"new"):
        api.put("/native-again").raise_for_status()
        make(api, "/native-again/a", TEXT, text)
        if text == b"old":
            for path in ("/native-again/a", "/native-again"):
                assert api.delete(path).status_code == 204
    api.post("/cluster/flush").raise_for_status()
    for where in ({"endpoint": server.url}, {"path": str(server.data_dir / "cold")}):
        frame = ursula.spark.read(spark, bucket="native-again", **where)
        assert [bytes(row.value) for row in frame.collect()] == [b"new"]
