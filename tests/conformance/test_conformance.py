"""The official suite against the default server, and against one that reads nearly all from the store."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.spread import spread_over
from tests.cluster.three_nodes import three_nodes
from tests.server import TINY_FLUSHES, Server

FOLDER = Path(__file__).parent
PASSED = 332
SKIPPED = 6
"""The suite's own tests of subscriptions, which it leaves out when told that there are none."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", [{}, TINY_FLUSHES], ids=["default", "tiny"])
def test_the_official_suite_passes_in_full(tmp_path: Path, settings: dict[str, str]) -> None:
    if not (FOLDER / "node_modules" / "vitest").is_dir():
        pytest.fail("the official suite is not installed, type: make node")
    with Server(tmp_path / "data", settings=settings) as server:
        results = run_suite(server.url, tmp_path / "results.json")
        assert server.complaints() == []
        assert server.stop() == 0
    check(results)


@pytest.mark.timeout(600)
def test_the_official_suite_passes_in_full_on_three_nodes(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as nodes, spread_over([node.port for node in nodes]) as url:
        check(run_suite(url, tmp_path / "results.json"))
        assert [node.stop() for node in reversed(nodes)] == [0, 0, 0]


def check(results: dict[str, Any]) -> None:
    """All of its tests have passed."""
    tests = [test for file in results["testResults"] for test in file["assertionResults"]]
    failed = [test["fullName"] for test in tests if test["status"] == "failed"]
    assert not failed, "\n".join(failed)
    counts = Counter(test["status"] for test in tests)
    assert counts["passed"] == PASSED
    assert len(tests) - PASSED in (0, SKIPPED), counts


def run_suite(url: str, results: Path) -> dict[str, Any]:
    # Some of its tests have a stopwatch, which a busy machine may stop too late: those are tried once more.
    command = ["npx", "--no-install", "vitest", "run", "--retry=1", "--reporter=json"]
    command.append(f"--outputFile={results}")
    environment = {**os.environ, "CONFORMANCE_TEST_URL": url, "CI": "true"}
    finished = subprocess.run(
        command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=500
    )
    if not results.exists():
        pytest.fail(f"the suite did not run:\n{finished.stdout}\n{finished.stderr}")
    loaded: dict[str, Any] = json.loads(results.read_text())
    return loaded
