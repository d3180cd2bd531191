"""An export to S3."""

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.server import Server

from ursula.pipeline import export
from ursula.pipeline.job_lease import JobLease, RunningJob
from ursula.spark.executor_store import ExecutorStore
from ursula.spark.reads.options import parse_read_options

Options = dict[str, str]

ALL = ['{"n":0}', '{"n":1}', "first", '"now"', "second"]


@pytest.fixture(scope="module")
def server(server_in_s3: Server) -> Server:
    return server_in_s3


@pytest.fixture(scope="module")
def api(api_in_s3: httpx.Client) -> httpx.Client:
    return api_in_s3


@pytest.fixture
def options(read_in_s3: Options, bucket: str) -> Options:
    return {**read_in_s3, "bucket": bucket}


def test_an_export_to_s3_is_whole_and_leaves_nothing_behind(
    spark: SparkSession, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    target, s3 = "s3://tables/lake", parse_read_options(options).s3
    store = ExecutorStore(target, s3)
    with monkeypatch.context() as patched:
        patched.setattr(RunningJob, "commit", killed)
        with pytest.raises(Killed):
            export(spark, target, options)
    assert store.names("_ursula/staging")
    assert export(spark, target, options).rows == len(ALL)
    done = JobLease(target, s3, f"exports/{options['bucket']}", "export").done()
    assert done is not None
    tables = [pq.read_table(pa.BufferReader(store.read(path))) for _, path in done["moves"]]
    assert sorted(row["value"].decode() for table in tables for row in table.to_pylist()) == sorted(ALL)
    assert store.names("_ursula/staging") == []
    assert export(spark, target, options).rows == 0
