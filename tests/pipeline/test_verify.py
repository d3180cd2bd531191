"""`verify`: an undamaged store passes, and every damage is named."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import BINARY, make, post
from tests.pipeline.conftest import Pipeline

from ursula.cold.objects.store import StoreFailed
from ursula.engine.offline.restore import RestoreRefused
from ursula.pipeline import verify


@pytest.fixture(scope="module")
def whole(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a store with three segments and a snapshot."""
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        api.put("/bulk").raise_for_status()
        make(api, "/bulk/a", BINARY)
        for number in range(3):
            post(api, "/bulk/a", b"%d" % number * 1000)
            api.post("/cluster/flush").raise_for_status()
        assert api.put(f"/bulk/a/snapshot/{3000:020d}?trim=false", content=b"state").status_code == 204
        api.post("/cluster/flush").raise_for_status()
    copy = tmp_path_factory.mktemp("whole") / "cold"
    shutil.copytree(server.data_dir / "cold", copy)
    return copy


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "cold"))


def segments(store: Path) -> list[Path]:
    return sorted((store / "segments").rglob("*.parquet"))


def test_a_whole_store_has_no_damage(spark: SparkSession, store: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    found = verify(spark, str(store), progress=lambda what, done, total: reported.append((what, done, total)))
    assert found.damages == []
    assert (found.extent.segments, found.extent.streams, found.extent.blobs) == (len(segments(store)), 1, 1)
    assert reported[-1][1] == reported[-1][2]
    assert verify(spark, str(store), dry_run=True).extent == found.extent


def test_each_damage_is_named(spark: SparkSession, store: Path) -> None:
    gone, flipped, *_ = segments(store)
    gone.unlink()
    data = bytearray(flipped.read_bytes())
    data[len(data) // 4] ^= 1
    flipped.write_bytes(data)
    assert verify(spark, str(store), dry_run=True).damages == []
    problems = {damage.name: damage.problem for damage in verify(spark, str(store)).damages}
    assert problems[str(gone.relative_to(store))] == "it is missing"
    assert str(flipped.relative_to(store)) in problems
    assert "no segment has its bytes" in problems["bulk/a"]


def test_the_command_fails_for_a_damaged_store(pipeline: Pipeline, store: Path, tmp_path: Path) -> None:
    segments(store)[0].unlink()
    report = tmp_path / "report.json"
    done = pipeline("verify", str(store), "--report", str(report))
    assert done.exit_code == 1, done.stderr
    assert "it is missing" in done.stdout
    assert json.loads(report.read_text())["damages"]


def test_what_is_no_store_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises((StoreFailed, RestoreRefused)):
        verify(spark, str(tmp_path))
