"""A store whose disk is not mounted: nothing is put into the empty folder in its place, and all is kept."""

import time
from pathlib import Path
from shutil import rmtree

import httpx
from tests.http.wire import BINARY, content, make, post, refused
from tests.server import Server

BACK_SECONDS_MAX = 60.0
LARGE_BYTES = 2 << 20


def test_nothing_is_stored_where_the_store_is_not(tmp_path: Path) -> None:
    mount, disk = tmp_path / "mount", tmp_path / "disk"
    settings = {"cold.root": str(mount), "cold.flush_interval": "1h", "cold.cache_bytes": "0"}
    with Server(tmp_path / "data", settings=settings) as server:
        with httpx.Client(base_url=server.url, timeout=60) as api:
            api.put("/bulk").raise_for_status()
            make(api, "/bulk/a", BINARY, b"stored, ")
            api.post("/cluster/flush").raise_for_status()
            mount.rename(disk)
            mount.mkdir()
            post(api, "/bulk/a", b"in memory, ")
            for _ in range(2):
                answer = api.post("/cluster/flush")
                refused(answer, 503, "store_unavailable")
                assert "is its disk mounted?" in answer.text
            for answer in (
                api.post("/bulk/a", content=b"x" * LARGE_BYTES, headers=BINARY),
                api.put("/bulk/a/snapshot/8", content=b"eight bytes in short"),
            ):
                refused(answer, 503, "store_unavailable")
                assert "is its disk mounted?" in answer.text
            assert [path for path in mount.rglob("*") if path.is_file()] == []
            rmtree(mount)
            disk.rename(mount)
            give_up_at = time.monotonic() + BACK_SECONDS_MAX
            while not api.post("/cluster/flush").is_success:
                assert time.monotonic() < give_up_at, "it is not found again"
                time.sleep(0.1)
            post(api, "/bulk/a", b"new")
            assert content(api, "/bulk/a") == b"stored, in memory, new"
        server.kill()
        server.start()
        with httpx.Client(base_url=server.url, timeout=60) as api:
            assert content(api, "/bulk/a") == b"stored, in memory, new"
