"""`ursula pipeline` as a function, and the fixtures of `tests/spark`: a session, buckets, a store in S3."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import (
    MASTER,
    api_in_s3,
    bucket,
    end_of_sessions,
    no_spark,
    read_in_s3,
    s3,
    seaweed,
    server_in_s3,
    spark,
)
from typer.testing import CliRunner, Result

from ursula.cli import app

__all__ = [
    "MASTER",
    "api_in_s3",
    "bucket",
    "end_of_sessions",
    "no_spark",
    "read_in_s3",
    "s3",
    "seaweed",
    "server_in_s3",
    "spark",
]

Pipeline = Callable[..., Result]


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession) -> Pipeline:
    """Runs `ursula pipeline ...` in this process and its session."""
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})

    def run(*arguments: str) -> Result:
        name, *more = arguments
        return runner.invoke(app, ["pipeline", name, "--master", MASTER, *more], catch_exceptions=False)

    return run
