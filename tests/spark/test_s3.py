"""A store in S3: executors read it with pyarrow, and a session without s3a still reads all of it."""

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.http.wire import TEXT, post
from tests.server import Server

import ursula.spark

Options = dict[str, str]


@pytest.fixture(scope="module")
def server(server_in_s3: Server) -> Server:
    return server_in_s3


@pytest.fixture(scope="module")
def api(api_in_s3: httpx.Client) -> httpx.Client:
    return api_in_s3


@pytest.fixture
def options(read_in_s3: Options, bucket: str) -> Options:
    return {**read_in_s3, "bucket": bucket}


def messages(frame: DataFrame) -> list[str]:
    return [row.text for row in frame.orderBy("position", "index").selectExpr("string(value) text").collect()]


ALL = ['{"n":0}', '{"n":1}', "first", '"now"', "second"]


def test_the_format_reads_segments_in_s3(spark: SparkSession, api: httpx.Client, options: Options) -> None:
    plan = api.get("/cluster/plan", params={"bucket": options["bucket"]}).json()
    assert plan["root"] == "s3://tables/of/ours"
    assert plan["segments"]
    assert messages(spark.read.format("ursula").options(**options).load()) == ALL
    del options["endpoint"]
    alone = spark.read.format("ursula").options(**options, path=plan["root"])
    assert messages(alone.load())[:3] == ALL[:3]


def test_without_s3a_a_native_read_has_the_same_rows_and_says_what_to_add(
    spark: SparkSession, api: httpx.Client, options: Options
) -> None:
    with pytest.warns(UserWarning, match=r"spark\.jars\.packages=org\.apache\.hadoop:hadoop-aws:\d"):
        frame = ursula.spark.read(spark, **options)
    post(api, f"/{options['bucket']}/both", b"third", TEXT)
    assert messages(frame) == ALL
