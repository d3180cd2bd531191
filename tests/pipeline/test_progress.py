"""How far a job is: told by the tasks of Spark, shown as a bar or in lines."""

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


class Told(list[tuple[str, int, int]]):
    """What a job told."""

    def __call__(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.append((what, done, total))

    def ends(self) -> dict[str, tuple[int, int]]:
        """What was told of each step last, in the order of the steps."""
        return {what: (done, total) for what, done, total in self}


def all_ended(told: Told, *steps: str) -> bool:
    ends = told.ends()
    return list(ends) == list(steps) and all(done == total > 0 for done, total in ends.values())


@pytest.fixture
def options(server: Server, bucket: str) -> dict[str, str]:
    return {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20"}


def test_an_export_tells_of_each_task_that_writes(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    told = Told()
    export(spark, str(tmp_path / "lake"), options, expand_json=True, progress=told)
    assert all_ended(told, "looking for columns", "writing files")
    assert told.ends()["writing files"] == (2, 2), "what is in the store, and what is in memory"


def test_a_materialize_tells_of_reading_and_of_folding(
    spark: SparkSession, api: httpx.Client, options: dict[str, str], tmp_path: Path
) -> None:
    given = options | {"streams": '["cold"]'}
    for _ in range(2):  # from nothing, then from states
        told = Told()
        materialize(spark, str(tmp_path), given, folds.total, progress=told)
        assert all_ended(told, "reading messages", "folding streams")
        post(api, f"/{options['bucket']}/cold", b'{"n":7}', JSON)


def test_usage_tells_how_many_segments_are_counted(spark: SparkSession, server: Server, bucket: str) -> None:
    told = Told()
    found = usage(spark, server.url, bucket=bucket, progress=told)
    assert all_ended(told, "counting", "adding up")
    assert told.ends()["counting"][1] == min(found.segments, 8)


def test_the_end_is_not_told_of_a_job_that_fails(spark: SparkSession) -> None:
    def broken(number: int) -> int:
        raise ZeroDivisionError

    told = Told()
    with pytest.raises(Exception, match="ZeroDivisionError"), report_tasks(spark, ("dividing",), told):
        spark.sparkContext.parallelize([1], 1).map(broken).collect()
    assert told[0] == ("dividing", 0, 0)
    assert all(done == 0 for _, done, _ in told)
    assert not [one for one in threading.enumerate() if one.name == "ursula-progress"]


def test_the_jobs_of_the_caller_keep_their_group(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "of mine")
    try:
        with report_tasks(spark, ("counting",), Told()):
            assert context.parallelize([1, 2], 2).count() == 2
            assert context.getLocalProperty("spark.jobGroup.id") != "mine"
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert context.getLocalProperty("spark.job.description") == "of mine"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_where_spark_tells_nothing_of_tasks_the_step_is_told() -> None:
    told, connected = Told(), object()
    with report_tasks(cast("SparkSession", connected), ("reading", "folding"), told):
        pass
    assert told == [("reading", 0, 0)]


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
