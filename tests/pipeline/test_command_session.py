"""`ursula pipeline` in a process that has a Spark session already."""

from pathlib import Path

from pyspark.sql import SparkSession
from tests.pipeline.conftest import MASTER, Pipeline


def test_an_existing_session_stays(pipeline: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    refused = pipeline("verify", str(tmp_path))
    assert refused.exit_code == 1
    assert refused.stderr.startswith("ursula: ")
    assert spark.range(3).count() == 3


def test_a_session_elsewhere_is_not_used_instead(pipeline: Pipeline, tmp_path: Path) -> None:
    refused = pipeline("verify", str(tmp_path), "--master", "local[7]")
    assert refused.exit_code == 1
    assert refused.stderr == f"ursula: this process already has a session at {MASTER}: stop it first\n"
