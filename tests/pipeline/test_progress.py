"""The progress of a job: counted in Spark's tasks, shown as a bar or in lines."""

import threading
from pathlib import Path
from typing import cast

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import JSON, post
from tests.pipeline import folds
from tests.server import Server

from ursula.pipeline import export, materialize, usage
from ursula.pipeline.progress import Stage, by_step, report_tasks
from ursula.terminal.progress import ProgressDisplay


class Reports(list[tuple[str, int, int]]):
    """What a job has reported."""

    def __call__(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.append((what, done, total))

    def ends(self) -> dict[str, tuple[int, int]]:
        """The last report of each step, in the order of the steps."""
        return {what: (done, total) for what, done, total in self}


def all_ended(reports: Reports, *steps: str) -> bool:
    ends = reports.ends()
    return list(ends) == list(steps) and all(done == total > 0 for done, total in ends.values())


@pytest.fixture
def options(server: Server, bucket: str) -> dict[str, str]:
    return {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20"}


def test_an_export_reports_each_task_that_writes(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    reports = Reports()
    export(spark, str(tmp_path / "lake"), options, expand_json=True, progress=reports)
    assert all_ended(reports, "looking for columns", "writing files")
    assert reports.ends()["writing files"] == (2, 2), "what is in the store, and what is in memory"


def test_a_materialize_reports_reading_and_folding(
    spark: SparkSession, api: httpx.Client, options: dict[str, str], tmp_path: Path
) -> None:
    given = options | {"streams": '["cold"]'}
    for _ in range(2):  # from nothing, then from states
        reports = Reports()
        materialize(spark, str(tmp_path), given, folds.total, progress=reports)
        assert all_ended(reports, "reading messages", "folding streams")
        post(api, f"/{options['bucket']}/cold", b'{"n":7}', JSON)


def test_usage_reports_how_many_segments_are_counted(
    spark: SparkSession, server: Server, bucket: str
) -> None:
    reports = Reports()
    found = usage(spark, server.url, bucket=bucket, progress=reports)
    assert all_ended(reports, "counting", "adding up")
    assert reports.ends()["counting"][1] == min(found.segments, 8)


def test_a_job_that_fails_does_not_report_its_end(spark: SparkSession) -> None:
    def broken(number: int) -> int:
        raise ZeroDivisionError

    reports = Reports()
    with pytest.raises(Exception, match="ZeroDivisionError"), report_tasks(spark, ("dividing",), reports):
        spark.sparkContext.parallelize([1], 1).map(broken).collect()
    assert reports[0] == ("dividing", 0, 0)
    assert all(done == 0 for _, done, _ in reports)
    assert not [one for one in threading.enumerate() if one.name == "ursula-progress"]


def test_the_jobs_of_the_caller_keep_their_group(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "of mine")
    try:
        with report_tasks(spark, ("counting",), Reports()):
            assert context.parallelize([1, 2], 2).count() == 2
            assert context.getLocalProperty("spark.jobGroup.id") != "mine"
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "of mine"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_without_a_report_from_spark_the_step_is_reported() -> None:
    reports, connected = Reports(), object()
    with report_tasks(cast("SparkSession", connected), ("reading", "folding"), reports):
        pass
    assert reports == [("reading", 0, 0)]


def test_the_last_step_is_all_stages_that_are_left() -> None:
    stages = [Stage(3, 3), Stage(1, 2), Stage(2, 4)]
    assert list(by_step(["read", "fold"], stages)) == [("read", Stage(3, 3)), ("fold", Stage(3, 6))]
    assert list(by_step(["read", "fold"], stages[:1])) == [("read", Stage(3, 3))]
    assert list(by_step(["read", "fold"], [])) == []


def test_without_a_terminal_a_line_says_now_and_then_how_much_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    with ProgressDisplay(lambda: now) as shown:
        shown("reading", 0, 0)
        shown("reading", 1, 8)
        now += 10
        shown("reading", 2, 8)
        shown("reading", 3, 8)
        shown("writing", 0, 5)
        now += 25
        shown("writing", 4, 5)
    assert capsys.readouterr().err.splitlines() == [
        "ursula: reading ...",
        "ursula: reading ... 25%",
        "ursula: writing ...",
        "ursula: writing ... 80%",
    ]
