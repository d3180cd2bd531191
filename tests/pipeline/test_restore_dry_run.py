"""`restore --dry-run` reports what a node from a copy would have, and writes nothing."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.wire import BINARY, make, post
from tests.pipeline.conftest import Pipeline
from tests.server import Server


@pytest.fixture
def store(start_server: Any) -> Path:
    """The store of a server that has stopped."""
    server: Server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        api.put("/bulk").raise_for_status()
        make(api, "/bulk/a", BINARY)
        post(api, "/bulk/a", b"x" * 3000)
        make(api, "/bulk/b", BINARY)
        api.post("/cluster/flush").raise_for_status()
    server.stop()
    return server.data_dir / "cold"


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    found = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def test_it_reports_what_would_be_restored(pipeline: Pipeline, store: Path, tmp_path: Path) -> None:
    before = contents(store)
    data = tmp_path / "data"
    manifest = max((store / "manifests" / "g0").iterdir())
    result = pipeline("restore", "--dry-run", str(store), "--data-dir", str(data))
    assert result.exit_code == 0, result.output
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    told_of = {name: text.strip() for name, text in lines.items()}
    assert told_of["manifest"] == f"manifests/g0/{manifest.name}"
    assert told_of["up to"] == f"position {json.loads(manifest.read_bytes())['position']}"
    assert told_of["would be generation"].startswith("2 of the cluster ")
    assert told_of["streams"] == "2 in 1 bucket"
    assert told_of["messages"].startswith("2.9 KiB in 1 segment of ")
    assert not data.exists()
    assert contents(store) == before


def test_it_reports_missing_objects_and_speaks_json(pipeline: Pipeline, store: Path, tmp_path: Path) -> None:
    segment = next((store / "segments").rglob("*.parquet"))
    segment.unlink()
    result = pipeline("restore", "--dry-run", str(store), "--data-dir", str(tmp_path / "data"), "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert (facts["dry_run"], facts["generation"], facts["extent"]["streams"]) == (True, 2, 2)
    assert [damage["name"] for damage in facts["damages"]] == [str(segment.relative_to(store))]


def test_it_rejects_what_a_restore_would_reject(pipeline: Pipeline, store: Path, tmp_path: Path) -> None:
    result = pipeline("restore", "--dry-run", str(store), "--data-dir", str(store.parent))
    assert result.exit_code == 1
    assert "is not empty" in result.stderr
    result = pipeline("restore", "--dry-run", str(tmp_path), "--data-dir", str(tmp_path / "data"))
    assert result.exit_code == 1
    assert "is not a store" in result.stderr
