"""The output of `ursula pipeline`: what a person can act on, without Spark's chatter."""

import os
import subprocess
import sys
from pathlib import Path

from tests.server import Server

FOLD = "def broken(state, messages):\n    raise ValueError('this fold is broken')\n"


def run(server: Server, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a job in its own process, which starts its own Java."""
    command = [sys.executable, "-W", "error", "-m", "ursula", "pipeline", *arguments]
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "URSULA_URL": server.url, "PYTHONPATH": path}
    return subprocess.run(
        [*command, "--master", "local[1]"], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_a_job_prints_only_what_it_does(server: Server, bucket: str, tmp_path: Path) -> None:
    done = run(server, tmp_path, "usage", "--bucket", bucket)
    assert done.returncode == 0, done.stderr
    assert bucket in done.stdout
    assert [line for line in done.stderr.splitlines() if not line.startswith("ursula: ")] == []


def test_an_error_in_a_task_stays_visible(server: Server, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "folds_of_mine.py").write_text(FOLD)
    states = str(tmp_path / "states")
    failed = run(server, tmp_path, "materialize", bucket, "folds_of_mine:broken", states)
    assert failed.returncode == 1
    assert "WARN" not in failed.stderr
    assert " ERROR " in failed.stderr
    said = [line for line in failed.stderr.splitlines() if line.startswith("ursula: ")][-1]
    assert said.startswith("ursula: a task failed: ")
    assert "ValueError('this fold is broken')" in said


def test_everything_is_shown_on_request(server: Server, bucket: str, tmp_path: Path) -> None:
    done = run(server, tmp_path, "usage", "--bucket", bucket, "--verbose")
    assert done.returncode == 0, done.stderr
    assert " WARN " in done.stderr
