"""An outage of S3, for everything that Spark does with it. `make faults` runs this file, by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.pipeline.test_outages import (
    REFUSED,
    ROWS,
    STORES_WHEN_TOLD,
    at,
    check_target,
    client,
    fill,
    wait_for_flush,
)
from tests.server import Server

from ursula.cold.objects.store import StoreFailed
from ursula.pipeline import backup, compact, export, usage, verify
from ursula.spark.http_client import ServerRefused
from ursula.spark.options import S3Options

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def seaweed(tmp_path: Path) -> Iterator[Seaweed]:
    with Seaweed(tmp_path / "seaweed") as running:
        running.bucket("outage")
        yield running


def test_s3_that_is_gone_for_a_while(spark: SparkSession, seaweed: Seaweed, tmp_path: Path) -> None:
    settings = {
        "cold.backend": "s3",
        "cold.root": "ours",
        "cold.s3_bucket": "outage",
        "cold.s3_endpoint": seaweed.endpoint,
        "cold.s3_access_key_id": ACCESS_KEY_ID,
        "cold.s3_secret_access_key": SECRET_ACCESS_KEY,
        **STORES_WHEN_TOLD,
    }
    s3 = S3Options(seaweed.endpoint, "us-east-1", ACCESS_KEY_ID, SECRET_ACCESS_KEY)
    reached = {
        "s3Endpoint": seaweed.endpoint,
        "s3Region": "us-east-1",
        "s3AccessKeyId": ACCESS_KEY_ID,
        "s3SecretAccessKey": SECRET_ACCESS_KEY,
    }
    with Server(tmp_path / "node", settings=settings) as server:
        with client(server) as api:
            fill(api)
            wait_for_flush(api)

        def read() -> int:
            return spark.read.format("ursula").options(**at(server.url), **reached).load().count()

        def write() -> None:
            rows = spark.range(ROWS).selectExpr("'s' AS stream", "concat(id, ';') AS value")
            target = {"endpoint": server.url, "bucket": "target", "retryTimeout": "1"}
            transaction = {"txnAppId": "outages", "txnVersion": "1"}
            rows.write.format("ursula").options(**target, **transaction).mode("append").save()

        seaweed.stop()
        try:
            with pytest.raises(PythonException, match="AWS Error NETWORK_CONNECTION"):
                read()
            with pytest.raises(PythonException, match=REFUSED):
                write()
            with pytest.raises(ServerRefused, match=REFUSED):
                compact(spark, server.url, s3=s3, retry_seconds=1)
            with pytest.raises(StoreFailed, match="s3://outage/ours"):
                verify(spark, "s3://outage/ours", s3=s3)
            with pytest.raises(StoreFailed, match="s3://outage/ours"):
                backup(spark, "s3://outage/ours", str(tmp_path / "copy"), s3=s3)
            with pytest.raises(OSError, match="AWS Error NETWORK_CONNECTION"):
                usage(spark, path="s3://outage/ours", s3=s3)
            with pytest.raises(StoreFailed, match="s3://outage/lake"):
                export(spark, "s3://outage/lake", {**at(server.url), **reached})
        finally:
            seaweed.start()
        with client(server) as api:
            wait_for_flush(api)
        assert read() == ROWS
        write()
        check_target(server, "write")
        assert compact(spark, server.url, s3=s3).segments_after == 1
        assert verify(spark, "s3://outage/ours", s3=s3).damages == []
        assert export(spark, "s3://outage/lake", {**at(server.url), **reached}).rows == ROWS
