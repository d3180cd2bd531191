"""A restore that is killed at any moment changes nothing that a second one does not make good."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.cold.test_restore import FORGETFUL, client, fill, look
from tests.faults.rounds import ROUNDS, seeded
from tests.server import Server


def restore(store: Path, folder: Path, kill_after: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the command, or kill it after a while if it still runs then."""
    command = [sys.executable, "-m", "ursula", "restore", "--from", str(store), "--data-dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def test_a_restore_killed_at_a_random_moment_is_run_again(tmp_path: Path) -> None:
    random = seeded("restore")
    with Server(tmp_path / "old", settings=FORGETFUL) as old, client(old) as api:
        fill(api)
        expected = look(api)
    original = tmp_path / "old" / "cold"
    began_at = time.monotonic()
    shutil.copytree(original, tmp_path / "timed")
    assert restore(tmp_path / "timed", tmp_path / "timing").returncode == 0
    whole = time.monotonic() - began_at
    for number in range(ROUNDS):
        store, folder = tmp_path / f"cold-{number}", tmp_path / f"new-{number}"
        shutil.copytree(original, store)
        ran = restore(store, folder, whole * random.uniform(0.5, 1.05))
        begun = len(os.listdir(store / "generations"))
        if not (folder / "ursula.json").exists():
            again = restore(store, folder)
            assert again.returncode == 0, again.stderr
            assert json.loads(again.stdout)["generation"] == begun + 1
        else:
            assert ran.returncode in (0, -9), ran.stderr
        settings = {**FORGETFUL, "cold.root": str(store)}
        with Server(folder, settings=settings) as new, client(new) as api:
            assert look(api) == expected
            assert new.stop() == 0
        shutil.rmtree(store)
