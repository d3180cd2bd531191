"""The next job removes what a killed job has left behind, and nothing else."""

from io import BytesIO
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import JSON, make
from tests.pipeline import folds
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.cold.objects.ulid import new_ulid
from ursula.pipeline import export, job_lease, materialize
from ursula.pipeline.job_lease import Document, JobLease, LeaseTaken, RunningJob
from ursula.pipeline.leftovers import remove_files, remove_unfinished
from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import S3Options

LONG_AGO = "0" * 26


class Killed(BaseException):
    """Ends a job between two of its steps."""


def killed(*_: object) -> None:
    raise Killed


@pytest.fixture
def options(server: Server, api: httpx.Client, path: str) -> dict[str, str]:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    make(api, f"/{name}/a", JSON, b'[{"n":1},{"n":2}]')
    return {"endpoint": server.url, "bucket": name, "retryTimeout": "20"}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_export_removes_what_was_staged_and_never_committed(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = tmp_path / "_ursula" / "staging"
    with monkeypatch.context() as patched:
        patched.setattr(RunningJob, "commit", killed)
        with pytest.raises(Killed):
            export(spark, str(tmp_path), options)
    left = files(staging)
    assert left
    others = staging / "other" / f"{1:020d}" / f"{new_ulid()}.parquet"
    notes = staging / options["bucket"] / "notes.txt"
    for file in (others, notes):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert export(spark, str(tmp_path), options).rows == 2
    assert files(staging) == {str(file.relative_to(staging)) for file in (others, notes)}
    assert spark.read.parquet(str(tmp_path)).count() == 2


def test_a_job_that_was_taken_over_leaves_the_files_of_the_next_one_alone(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One export pauses when its rows are staged; another one does everything; then the first continues."""
    commit = RunningJob.commit

    def paused(job: RunningJob, done: Document) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(RunningJob, "commit", commit)
            patched.setattr(job_lease, "SILENT_SECONDS", -1.0)
            assert export(spark, str(tmp_path), options).rows == 2
        commit(job, done)

    with monkeypatch.context() as patched:
        patched.setattr(RunningJob, "commit", paused)
        with pytest.raises(LeaseTaken, match="was started in the meantime"):
            export(spark, str(tmp_path), options)
    assert spark.read.parquet(str(tmp_path)).count() == 2
    assert export(spark, str(tmp_path), options).rows == 0
    assert files(tmp_path / "_ursula" / "staging") == set()


def test_materialize_removes_states_that_were_never_committed(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = materialize(spark, str(tmp_path), options, folds.total)
    kept = files(tmp_path / "states")
    assert kept
    with monkeypatch.context() as patched:
        patched.setattr(RunningJob, "commit", killed)
        with pytest.raises(Killed):
            materialize(spark, str(tmp_path), options, folds.total)
    assert files(tmp_path / "states") > kept, "what was committed is still there"
    again = materialize(spark, str(tmp_path), options, folds.total)
    assert (done.states, again.states) == (1, 1)
    assert again.path is not None
    assert {Path(file).parent.name for file in files(tmp_path / "states")} == {Path(again.path).name}


def test_only_files_of_jobs_that_are_not_named_are_removed(tmp_path: Path) -> None:
    run, later = f"{7:020d}", f"{8:020d}"
    named, unnamed = f"states/b/{run}/{new_ulid()}.parquet", f"states/b/{run}/{new_ulid()}.parquet"
    alone = f"states/b/{3:020d}/{new_ulid()}.parquet"
    foreign = {
        f"states/b/{run}/notes.txt",
        f"states/b/{later}/{new_ulid()}.parquet",
        f"states/b/mine/{new_ulid()}.parquet",
        f"states/b/{new_ulid()}.parquet",
        f"states/b2/{run}/{new_ulid()}.parquet",
    }
    store = ExecutorStore(str(tmp_path), S3Options())
    for name in {named, unnamed, alone, *foreign}:
        store.put(BytesIO(b""), name)
    assert remove_files(store, "states/b", 7, [named]) == 2
    assert files(tmp_path) == {named, *foreign}
    assert not (tmp_path / alone).parent.exists()
    assert remove_files(store, "states/nobody", 7, []) == 0


def test_only_files_that_were_begun_long_ago_are_removed_as_unfinished(tmp_path: Path) -> None:
    store = ExecutorStore(str(tmp_path), S3Options())
    old = {f"tmp/{LONG_AGO}-{new_ulid()}.parquet", f"tmp/{LONG_AGO}"}
    kept = {f"tmp/{new_ulid()}-{new_ulid()}.parquet", f"tmp/{LONG_AGO}-notes.txt", "tmp/mine"}
    for name in old | kept:
        store.put(BytesIO(b""), name)
    assert remove_unfinished(store, "tmp") == 2
    assert files(tmp_path) == kept


@pytest.mark.parametrize(
    ("command", "folder"),
    [(["export"], "exports"), (["materialize", "tests.pipeline.folds:total"], "states")],
)
def test_a_second_job_on_a_place_ends_with_one_line(
    pipeline: Pipeline, tmp_path: Path, command: list[str], folder: str
) -> None:
    first = JobLease(str(tmp_path), S3Options(), f"{folder}/orders", "job")
    with first.acquire():
        result = pipeline(command[0], "orders", *command[1:], str(tmp_path), "--store", str(tmp_path))
    assert result.exit_code == 1
    assert f"another {command[0]} of the bucket 'orders'" in result.stderr
    assert "has been running since" in result.stderr
    assert first.done() is None
