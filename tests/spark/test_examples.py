"""The examples work as they are, and the pictures in the docs are theirs."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.server import Server

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def server(start_server: Any) -> Server:
    found: Server = start_server()
    return found


def run(name: str, folder: Path, *more: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_the_dashboard_counts_every_run(server: Server, tmp_path: Path) -> None:
    told = run("agent_dashboard", tmp_path, "--endpoint", server.url, "--demo")
    assert told[-1].endswith(": 120 runs have ended")
    drawn = (tmp_path / "dashboard.svg").read_text()
    ElementTree.fromstring(drawn)
    assert drawn == (PICTURES / "agent-dashboard.svg").read_text()


def test_the_chats_are_folded_and_published(server: Server, tmp_path: Path) -> None:
    told = run("chat_snapshots", tmp_path, "--endpoint", server.url, "--demo")
    assert told[0] == "4 rooms have changed, 4 snapshots were published"
    assert [line.partition(":")[0] for line in told[1:]] == ["garden", "kitchen", "library", "roof"]
    assert (tmp_path / "chats.svg").read_text() == (PICTURES / "chat-snapshots.svg").read_text()
    again = run("chat_snapshots", tmp_path, "--endpoint", server.url)
    assert again[0] == "0 rooms have changed, 0 snapshots were published"
    assert again[1:] == told[1:]
