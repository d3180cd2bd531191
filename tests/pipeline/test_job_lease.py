"""One job at a time works on a target: each number is given once, in a folder and in S3."""

import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed

from ursula.cold.objects.ulid import new_ulid
from ursula.pipeline import job_lease
from ursula.pipeline.job_lease import JobLease, LeaseTaken, RunningJob, folder_of
from ursula.spark.options import OptionError, S3Options


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        running.bucket("places")
        yield running


@pytest.fixture(params=["folder", "s3"])
def lease(request: pytest.FixtureRequest, tmp_path: Path) -> JobLease:
    """A lease without entries."""
    target, s3 = str(tmp_path / "place"), S3Options()
    if request.param == "s3":
        seaweed = request.getfixturevalue("seaweed")
        s3 = S3Options(seaweed.endpoint, "us-east-1", ACCESS_KEY_ID, SECRET_ACCESS_KEY)
        target = f"s3://places/{new_ulid()}"
    return JobLease(target, s3, f"exports/{folder_of('a/b')}", "export of it")


def test_the_next_job_finds_what_was_done(lease: JobLease) -> None:
    assert lease.done() is None
    for number in range(4):
        with lease.acquire() as job:
            assert job.done == (None if number == 0 else {"position": number - 1})
            job.commit({"position": number})
            assert job.done == {"position": number}
        assert lease.done() == {"position": number}
        assert len(lease.entries()) == 1, "old entries are removed"


def test_a_second_job_learns_of_the_first(lease: JobLease) -> None:
    with lease.acquire() as job:
        with pytest.raises(
            LeaseTaken, match=rf"another export of it has been running since 2.*process {os.getpid()},"
        ):
            lease.acquire().__enter__()
        job.commit({})
        with pytest.raises(LeaseTaken, match=r"If it was killed, run this again in \d+ s"):
            lease.acquire().__enter__()
    with lease.acquire() as job:
        assert job.done == {}


def test_a_job_that_fails_lets_the_next_one_in_at_once(lease: JobLease) -> None:
    with lease.acquire() as job:
        job.commit({"n": 1})
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), lease.acquire():
            raise ZeroDivisionError
    with lease.acquire() as job:
        assert job.done == {"n": 1}
    assert len(lease.entries()) == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_a_job_that_was_taken_over_cannot_commit(
    lease: JobLease, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    monkeypatch.setattr(job_lease, "SILENT_SECONDS", -1.0)
    with lease.acquire() as first, lease.acquire() as second:
        if is_done:
            second.commit({"by": "the second"})
        with pytest.raises(LeaseTaken, match="started in the meantime"):
            first.commit({"by": "the first"})
        if not is_done:
            second.commit({"by": "the second"})
    assert lease.done() == {"by": "the second"}
    with lease.acquire() as third:
        assert third.done == {"by": "the second"}


def test_a_job_that_was_killed_on_this_machine_is_taken_over_at_once(
    lease: JobLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: dead.pid)
        RunningJob(lease, 1, None)
    with lease.acquire() as job:
        job.commit({"n": 1})
    with monkeypatch.context() as patched:
        patched.setattr(platform, "node", lambda: "elsewhere")
        patched.setattr(os, "getpid", lambda: dead.pid)
        RunningJob(lease, 4, None)
    with pytest.raises(LeaseTaken, match="on elsewhere"), lease.acquire():
        pass


def test_of_several_jobs_that_start_at_once_one_gets_the_number(lease: JobLease) -> None:
    outcomes: list[Any] = []

    def begin() -> None:
        try:
            outcomes.append(RunningJob(lease, 1, None))
        except LeaseTaken as error:
            outcomes.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(outcome) for outcome in outcomes].count(RunningJob) == 1


def test_a_job_sends_heartbeats_while_it_runs(lease: JobLease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lease, "HEARTBEAT_SECONDS", 0.01)
    with lease.acquire():
        begun = lease.entries()[-1].document["heard"]
        latest = time.monotonic() + 60
        while lease.entries()[-1].document["heard"] == begun:
            assert time.monotonic() < latest
    assert lease.entries()[-1].document["ended"]


def test_entries_of_a_newer_version_are_not_read(lease: JobLease, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(job_lease, "FORMAT", 2)
        with lease.acquire() as job:
            job.commit({})
    with pytest.raises(OptionError, match="newer version"):
        lease.done()


def test_foreign_files_are_not_entries(tmp_path: Path) -> None:
    folder = tmp_path / "_ursula" / "exports"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    lease = JobLease(str(tmp_path), S3Options(), "exports", "export of it")
    with lease.acquire() as job:
        job.commit({"n": 1})
    assert [entry.number for entry in lease.entries()] == [2]
    assert sorted(path.name for path in folder.iterdir()) == [f"{2:020d}.json", "notes.txt"]


def test_folders_of_buckets_are_names() -> None:
    assert [folder_of(bucket) for bucket in ("orders", "a/b", ".")] == ["orders", "a%2Fb", "%2E"]
