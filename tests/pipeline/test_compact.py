"""`compact`: few large segments instead of many small ones, and readers do not notice."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import BINARY, content, make, post
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.cold.state.manifest import LiveSegment
from ursula.pipeline import compact
from ursula.pipeline.compact import runs
from ursula.spark.http_client import ServerRefused

VALUES = [b"%d" % number * 1000 for number in range(6)]


@pytest.fixture
def bulk(start_server: Any) -> Server:
    """A server with six small segments."""
    server: Server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        for bucket in ("bulk", "other"):
            api.put(f"/{bucket}").raise_for_status()
            make(api, f"/{bucket}/a", BINARY)
        for value in VALUES:
            for bucket in ("bulk", "other"):
                post(api, f"/{bucket}/a", value)
            api.post("/cluster/flush").raise_for_status()
    return server


def segments(server: Server) -> list[dict[str, Any]]:
    answer = httpx.get(f"{server.url}/cluster/plan", params={"bucket": "bulk"})
    found: list[dict[str, Any]] = answer.json()["segments"]
    return found


def segment(number: int, size: int) -> LiveSegment:
    return LiveSegment(f"{number}", number, number + 1, 1, size)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 1], [[1, 1]]),
        ([40, 40, 40], [[40, 40]]),
        ([40, 40, 40, 40, 1], [[40, 40], [40, 40, 1]]),
        ([1, 60, 1], []),
        ([1, 1, 60, 1, 1], [[1, 1], [1, 1]]),
        ([100, 100], []),
    ],
)
def test_which_neighbours_become_one(sizes: list[int], expected: list[list[int]]) -> None:
    found = runs([segment(number, size) for number, size in enumerate(sizes)], 100)
    assert [[one.bytes for one in run] for run in found] == expected


def test_many_segments_become_one(spark: SparkSession, bulk: Server) -> None:
    before = segments(bulk)
    would = compact(spark, bulk.url, dry_run=True)
    assert (would.segments_before, would.segments_after, would.runs) == (len(before), 1, 1)
    assert segments(bulk) == before
    reported: list[tuple[int, int]] = []
    found = compact(spark, bulk.url, progress=lambda done, total: reported.append((done, total)))
    assert (found.segments_before, found.segments_after, found.runs) == (len(before), 1, 1)
    assert (found.bytes_before, found.bytes_after) == (would.bytes_before, segments(bulk)[0]["bytes"])
    assert found.rows == segments(bulk)[0]["rows"] == sum(one["rows"] for one in before)
    assert reported == [(found.bytes_before, found.bytes_before)]
    with httpx.Client(base_url=bulk.url, timeout=60) as api:
        for bucket in ("bulk", "other"):
            assert content(api, f"/{bucket}/a") == b"".join(VALUES)
    assert compact(spark, bulk.url).runs == 0, "there is nothing more to do"


def test_segments_that_the_server_has_merged_meanwhile_are_skipped(
    spark: SparkSession, bulk: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, group: int, old: list[str], new: str) -> None:
        raise ServerRefused(409, "segments_replaced", "too late")

    monkeypatch.setattr("ursula.spark.http_client.ServerClient.replace_segments", refuse)
    found = compact(spark, bulk.url)
    assert (found.runs, len(found.overtaken)) == (0, 1)
    assert len(segments(bulk)) == found.segments_after == found.segments_before


def test_the_command(pipeline: Pipeline, bulk: Server, tmp_path: Path) -> None:
    count = len(segments(bulk))
    more = ["--report", str(tmp_path / "report.json"), "--json"]
    done = pipeline("compact", "--endpoint", bulk.url, *more)
    assert done.exit_code == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(done.stdout) == report
    assert (report["segments_before"], report["segments_after"]) == (count, 1)
    assert "merging segments" in done.stderr
