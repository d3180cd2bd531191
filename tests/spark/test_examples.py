"""The examples run unchanged, and draw the pictures in the docs."""

import runpy
import sys
from collections.abc import Callable
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


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """The output of an example in this process, which runs Java already. Java stays in its folder."""

    def run(name: str, *more: str) -> list[str]:
        script = str(ROOT / "examples" / f"{name}.py")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *more])
        runpy.run_path(script, run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_the_dashboard_counts_every_run(
    server: Server, tmp_path: Path, run_here: Callable[..., list[str]]
) -> None:
    output = run_here("agent_dashboard", "--endpoint", server.url, "--demo")
    assert output[-1].endswith(": 120 runs have ended")
    drawn = (tmp_path / "dashboard.svg").read_text()
    ElementTree.fromstring(drawn)
    assert drawn == (PICTURES / "agent-dashboard.svg").read_text()


def test_the_chats_are_folded_and_published(
    server: Server, tmp_path: Path, run_here: Callable[..., list[str]]
) -> None:
    states = str(tmp_path / "chat-states")
    output = run_here("chat_snapshots", "--endpoint", server.url, "--states", states, "--demo")
    assert output[0] == "4 rooms have changed, 4 snapshots were published"
    assert [line.partition(":")[0] for line in output[1:]] == ["garden", "kitchen", "library", "roof"]
    assert (tmp_path / "chats.svg").read_text() == (PICTURES / "chat-snapshots.svg").read_text()
    again = run_here("chat_snapshots", "--endpoint", server.url, "--states", states)
    assert again[0] == "0 rooms have changed, 0 snapshots were published"
    assert again[1:] == output[1:]
