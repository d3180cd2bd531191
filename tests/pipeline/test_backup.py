"""`backup` and `restore`: a consistent copy, and a node from it that has everything."""

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import BINARY, JSON, content, make, post, producer
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.engine.data_folder import FolderRefused
from ursula.engine.offline.restore import RestoreRefused
from ursula.pipeline import backup, restore, verify

SNAPSHOT = b"the state at 3000"


def fill(api: httpx.Client) -> None:
    """Streams of several kinds, in two segments, and a snapshot."""
    api.put("/bulk").raise_for_status()
    make(api, "/bulk/a", BINARY)
    for number in range(3):
        post(api, "/bulk/a", b"%d" % number * 1000)
    api.post("/cluster/flush").raise_for_status()
    make(api, "/bulk/j", JSON, b'[1,{"n":2}]')
    post(api, "/bulk/j", b"3", JSON | producer(0), status=200)
    answer = api.put(f"/bulk/a/snapshot/{3000:020d}?trim=false", content=SNAPSHOT)
    assert answer.status_code == 204
    assert api.put("/bulk/j/attrs", json={"title": "x"}).status_code == 204
    api.post("/cluster/flush").raise_for_status()


@pytest.fixture
def source(start_server: Any) -> Server:
    server: Server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        fill(api)
    return server


def store_of(server: Server) -> str:
    return str(server.data_dir / "cold")


def test_a_node_from_a_copy_has_everything(spark: SparkSession, source: Server, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    would = backup(spark, store_of(source), copy, dry_run=True)
    assert (would.copied_objects, would.objects) == (would.objects, would.objects)
    assert not Path(copy).joinpath("segments").exists()
    done = backup(spark, store_of(source), copy)
    assert (done.copied_objects, done.copied_bytes) == (would.copied_objects, would.copied_bytes)
    assert verify(spark, copy).damages == []
    frame = spark.read.format("ursula").options(path=copy, bucket="bulk").load()
    assert frame.count() == 6
    restored = restore(spark, copy, tmp_path / "data")
    assert (restored.generation, restored.extent.streams, restored.extent.blobs) == (2, 2, 1)
    with Server(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=60) as api:
        assert content(api, "/bulk/a") == b"0" * 1000 + b"1" * 1000 + b"2" * 1000
        assert json.loads(content(api, "/bulk/j")) == [1, {"n": 2}, 3]
        assert api.get(f"/bulk/a/snapshot/{3000:020d}").content == SNAPSHOT
        assert api.get("/bulk/j/attrs").json()["title"] == "x"
        post(api, "/bulk/j", b"3", JSON | producer(0), status=204)
        post(api, "/bulk/j", b"4", JSON | producer(1), status=200)
    assert verify(spark, copy).damages == [], "the copy stays as it is"


def test_the_next_backup_copies_only_new_objects(spark: SparkSession, source: Server, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    first = backup(spark, store_of(source), copy)
    assert backup(spark, store_of(source), copy).copied_objects == 0
    with httpx.Client(base_url=source.url, timeout=60) as api:
        post(api, "/bulk/a", b"more")
        api.post("/cluster/flush").raise_for_status()
    second = backup(spark, store_of(source), copy)
    assert 0 < second.copied_objects < first.objects
    assert second.positions[0] > first.positions[0]
    assert verify(spark, copy).damages == []


def test_a_damaged_object_leaves_the_copy_as_it_was(
    spark: SparkSession, source: Server, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    before = backup(spark, store_of(source), copy)
    with httpx.Client(base_url=source.url, timeout=60) as api:
        post(api, "/bulk/a", b"more")
        api.post("/cluster/flush").raise_for_status()
    broken = Path(shutil.copytree(store_of(source), tmp_path / "broken"))
    newest = max((broken / "segments").rglob("*.parquet"))
    data = bytearray(newest.read_bytes())
    data[50] ^= 1
    newest.write_bytes(data)
    done = backup(spark, str(broken), copy)
    assert [one.name for one in done.damages] == [str(newest.relative_to(broken))]
    assert "digest" in done.damages[0].problem
    kept = verify(spark, copy)
    assert (kept.damages, kept.positions) == ([], before.positions)
    newest.unlink()
    assert backup(spark, str(broken), copy).damages[0].problem == "it is missing"
    with pytest.raises(RestoreRefused, match="damaged objects"):
        restore(spark, str(broken), tmp_path / "data")
    assert not (tmp_path / "data" / "ursula.json").exists()


def test_a_copy_of_another_cluster_is_refused(
    spark: SparkSession, source: Server, start_server: Any, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    backup(spark, store_of(source), copy)
    other: Server = start_server()
    with httpx.Client(base_url=other.url, timeout=60) as api:
        fill(api)
    with pytest.raises(RestoreRefused, match="another cluster"):
        backup(spark, store_of(other), copy)
    with pytest.raises(RestoreRefused, match="not a store"):
        backup(spark, str(tmp_path), copy)


def test_an_existing_node_is_not_replaced(spark: SparkSession, source: Server) -> None:
    live = source.data_dir / "cold" / "live" / "g0.json"
    before = live.stat().st_mtime_ns
    with pytest.raises(FolderRefused):
        restore(spark, store_of(source), source.data_dir)
    assert live.stat().st_mtime_ns == before, "nothing was written"


def test_a_place_that_has_no_copy_leaves_the_data_folder_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(RestoreRefused, match="not a store"):
        restore(spark, str(tmp_path / "mistyped"), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_the_commands(pipeline: Pipeline, source: Server, tmp_path: Path) -> None:
    copy, report = str(tmp_path / "copy"), tmp_path / "report.json"
    done = pipeline("backup", store_of(source), copy, "--report", str(report))
    assert done.exit_code == 0, done.stderr
    assert "copied" in done.stdout
    assert json.loads(report.read_text())["copied_objects"] > 0
    done = pipeline("restore", copy, "--data-dir", str(tmp_path / "data"), "--report", str(report))
    assert done.exit_code == 0, done.stderr
    assert "2 in 1 bucket\n" in done.stdout
    assert json.loads(report.read_text())["generation"] == 2
