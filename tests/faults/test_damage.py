"""Files that were damaged while the server was down: it says so instead of losing something in silence."""

import json
import re
from pathlib import Path

import httpx
import pytest
from tests.cold.test_restore import command
from tests.http.wire import TEXT, make, post
from tests.server import Server, ServerExited

SELDOM = {"cold.flush_interval": "1h"}


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def last_log_file(folder: Path) -> Path:
    return max((folder / "log" / "g0").glob("*.log"))


def test_a_damaged_last_record_is_noticed_after_a_clean_stop_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    server = Server(folder, settings=SELDOM).start()
    with httpx.Client(base_url=server.url) as api:
        api.put("/demo")
        make(api, "/demo/s", TEXT, b"first")
        post(api, "/demo/s", b"the last one", TEXT)
    server.stop()
    log = last_log_file(folder)
    flip(log, log.read_bytes().rindex(b"the last one"))
    damaged = log.read_bytes().rstrip(b"\0")
    for _ in range(2):
        with pytest.raises(ServerExited) as refused:
            server.start()
        assert "this node had applied" in refused.value.stderr
        assert log.read_bytes().rstrip(b"\0") == damaged, "what a person could mend must stay"
    flip(log, log.read_bytes().rindex(b"he last one") - 1)
    with server, httpx.Client(base_url=server.url) as api:
        assert api.get("/demo/s").content == b"firstthe last one"


def flushed(folder: Path) -> bytes:
    """A data folder after three flushes and one append; what its stream holds."""
    with Server(folder, settings=SELDOM) as server, httpx.Client(base_url=server.url) as api:
        api.put("/demo")
        make(api, "/demo/s", TEXT)
        for number in range(3):
            for part in range(3):
                post(api, "/demo/s", b"%d.%d " % (number, part), TEXT)
            assert api.post("/cluster/flush").status_code == 200
        post(api, "/demo/s", b"the last one", TEXT)
        return api.get("/demo/s").content


def newest_manifest(folder: Path) -> Path:
    return max((folder / "cold" / "manifests" / "g0").iterdir())


def move_position(manifest: Path, by: int) -> None:
    """Change the position that a manifest says it is of."""
    text = manifest.read_text()
    position = json.loads(text)["position"]
    manifest.write_text(text.replace(f'"position": {position}', f'"position": {position + by}'))


def forget_checksums(folder: Path) -> None:
    """Make manifests what they were before they had a checksum."""
    for manifest in (folder / "cold" / "manifests" / "g0").iterdir():
        manifest.write_text(re.sub(r',\n "checksum": "[^"]*"', "", manifest.read_text()))


@pytest.mark.parametrize("is_old", [False, True], ids=["with a checksum", "of an earlier version"])
@pytest.mark.parametrize("by", [1, 3, -3])
def test_a_newest_manifest_of_a_wrong_position_costs_nothing_and_is_told(
    tmp_path: Path, by: int, is_old: bool
) -> None:
    folder = tmp_path / "data"
    content = flushed(folder)
    if is_old:
        forget_checksums(folder)
    command("inspect", str(folder / "cold"), "--verify")
    damaged = newest_manifest(folder)
    move_position(damaged, by)
    found = command("inspect", str(folder / "cold"), "--verify", expect=1)
    assert damaged.name in found.stdout
    with Server(folder, settings=SELDOM) as server, httpx.Client(base_url=server.url) as api:
        assert api.get("/demo/s").content == content
        (warning,) = server.complaints()
        assert damaged.name in warning["message"]
        assert "nothing is lost" in warning["message"]
        assert api.post("/cluster/flush").status_code == 200
    with Server(folder, settings=SELDOM) as server, httpx.Client(base_url=server.url) as api:
        assert api.get("/demo/s").content == content
        assert server.complaints() == []


def test_a_damaged_newest_manifest_is_refused_if_the_log_does_not_reach_further_back(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    small_log = {**SELDOM, "limits.log_segment_bytes": "4KiB"}
    with Server(folder, settings=small_log) as server, httpx.Client(base_url=server.url) as api:
        api.put("/demo")
        make(api, "/demo/s", TEXT)
        for number in range(2):
            post(api, "/demo/s", bytes([65 + number]) * 10_000, TEXT)
            assert api.post("/cluster/flush").status_code == 200
        post(api, "/demo/s", b"z" * 10_000, TEXT)  # begins another file of the log
        assert api.post("/cluster/purge-log").status_code == 200
    damaged = newest_manifest(folder)
    move_position(damaged, 4)
    with pytest.raises(ServerExited) as refused:
        Server(folder, settings=small_log).start()
    assert damaged.name in refused.value.stderr
    assert "ursula restore --at" in refused.value.stderr
