"""One job at a time on a place: each number is given once, in a folder and in S3."""

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
from ursula.pipeline import ledger as ledgers
from ursula.pipeline.ledger import Ledger, PlaceTaken, Run, folder_of
from ursula.spark.options import OptionError, S3Options


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        running.bucket("places")
        yield running


@pytest.fixture(params=["folder", "s3"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """One with nothing in it."""
    target, s3 = str(tmp_path / "place"), S3Options()
    if request.param == "s3":
        seaweed = request.getfixturevalue("seaweed")
        s3 = S3Options(seaweed.endpoint, "us-east-1", ACCESS_KEY_ID, SECRET_ACCESS_KEY)
        target = f"s3://places/{new_ulid()}"
    return Ledger(target, s3, f"exports/{folder_of('a/b')}", "export of it")


def test_the_next_job_finds_what_was_done(ledger: Ledger) -> None:
    assert ledger.done() is None
    for number in range(4):
        with ledger.run() as run:
            assert run.done == (None if number == 0 else {"position": number - 1})
            run.commit({"position": number})
            assert run.done == {"position": number}
        assert ledger.done() == {"position": number}
        assert len(ledger.entries()) == 1, "old ones are removed"


def test_a_second_job_is_told_of_the_first(ledger: Ledger) -> None:
    with ledger.run() as run:
        with pytest.raises(PlaceTaken, match=rf"another export of it runs since 2.*process {os.getpid()},"):
            ledger.run().__enter__()
        run.commit({})
        with pytest.raises(PlaceTaken, match=r"If it was killed, run this again in \d+ s"):
            ledger.run().__enter__()
    with ledger.run() as run:
        assert run.done == {}


def test_a_job_that_fails_lets_the_next_one_in_at_once(ledger: Ledger) -> None:
    with ledger.run() as run:
        run.commit({"n": 1})
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), ledger.run():
            raise ZeroDivisionError
    with ledger.run() as run:
        assert run.done == {"n": 1}
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_a_job_that_was_taken_over_cannot_commit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    monkeypatch.setattr(ledgers, "SILENT_SECONDS", -1.0)
    with ledger.run() as first, ledger.run() as second:
        if is_done:
            second.commit({"by": "the second"})
        with pytest.raises(PlaceTaken, match="begun meanwhile"):
            first.commit({"by": "the first"})
        if not is_done:
            second.commit({"by": "the second"})
    assert ledger.done() == {"by": "the second"}
    with ledger.run() as third:
        assert third.done == {"by": "the second"}


def test_a_job_that_was_killed_on_this_machine_is_taken_over_at_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: dead.pid)
        Run(ledger, 1, None)
    with ledger.run() as run:
        run.commit({"n": 1})
    with monkeypatch.context() as patched:
        patched.setattr(platform, "node", lambda: "elsewhere")
        patched.setattr(os, "getpid", lambda: dead.pid)
        Run(ledger, 4, None)
    with pytest.raises(PlaceTaken, match="on elsewhere"), ledger.run():
        pass


def test_of_two_that_begin_at_once_one_gets_the_number(ledger: Ledger) -> None:
    outcomes: list[Any] = []

    def begin() -> None:
        try:
            outcomes.append(Run(ledger, 1, None))
        except PlaceTaken as error:
            outcomes.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(outcome) for outcome in outcomes].count(Run) == 1


def test_a_job_is_heard_of_while_it_runs(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "BEAT_SECONDS", 0.01)
    with ledger.run():
        begun = ledger.entries()[-1].document["heard"]
        latest = time.monotonic() + 60
        while ledger.entries()[-1].document["heard"] == begun:
            assert time.monotonic() < latest
    assert ledger.entries()[-1].document["ended"]


def test_entries_of_a_newer_version_are_not_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ledgers, "FORMAT", 2)
        with ledger.run() as run:
            run.commit({})
    with pytest.raises(OptionError, match="newer version"):
        ledger.done()


def test_files_of_others_are_no_entries(tmp_path: Path) -> None:
    folder = tmp_path / "_ursula" / "exports"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    ledger = Ledger(str(tmp_path), S3Options(), "exports", "export of it")
    with ledger.run() as run:
        run.commit({"n": 1})
    assert [entry.number for entry in ledger.entries()] == [2]
    assert sorted(path.name for path in folder.iterdir()) == [f"{2:020d}.json", "notes.txt"]


def test_folders_of_buckets_are_names() -> None:
    assert [folder_of(bucket) for bucket in ("orders", "a/b", ".")] == ["orders", "a%2Fb", "%2E"]
