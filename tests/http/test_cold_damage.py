"""Segments that are not what was written: who needs them is told which, and everyone else goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import ask
from tests.http.test_bootstrap import parts_of
from tests.http.wire import BINARY, make, post
from tests.server import Server

SIZE = 5000


def missing(path: Path) -> None:
    path.unlink()


def short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)


def flipped_at_the_end(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 4
    path.write_bytes(data)


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> Server:
    """A server that flushes when it is told to, and keeps nothing that it has read."""
    return start_server(cold__flush_interval="1h", cold__cache_bytes="0")


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def flushed(server: Server, api: httpx.Client) -> Path:
    """Flush; the new segment."""
    before = set((server.data_dir / "cold" / "segments").rglob("*.parquet"))
    assert api.post("/cluster/flush").status_code == 200
    (new,) = set((server.data_dir / "cold" / "segments").rglob("*.parquet")) - before
    return new


@pytest.mark.parametrize("damage", [missing, short, empty, flipped, flipped_at_the_end])
def test_a_damaged_segment_is_named_and_nothing_else_is_affected(
    server: Server, api: httpx.Client, damage: Callable[[Path], None]
) -> None:
    bucket = f"/damage-{damage.__name__.replace('_', '-')}"
    assert api.put(bucket).status_code == 201
    path = f"{bucket}/s"
    parts = [bytes([65 + number]) * SIZE for number in range(3)]
    make(api, path, BINARY, parts[0])
    first = flushed(server, api)
    make(api, f"{bucket}/other", BINARY, b"other")
    flushed(server, api)
    post(api, path, parts[1])
    flushed(server, api)
    post(api, path, parts[2])
    original = first.read_bytes()
    damage(first)
    for place in (path, f"{path}?offset={SIZE - 1}", f"{bucket}?offset=-1", f"{path}/bootstrap"):
        answer = ask(server, "GET", place)
        assert (answer.status, answer.code) == (500, "object_damaged"), place
        assert first.name.encode() in answer.body
    assert api.get(f"{bucket}/other").content == b"other"
    assert api.get(path, params={"offset": str(SIZE)}).content == parts[1] + parts[2]
    assert api.head(path).headers["stream-next-offset"].lstrip("0") == str(3 * SIZE)
    assert post(api, path, b"more").headers["stream-next-offset"].lstrip("0") == str(3 * SIZE + 4)
    assert first.exists() == (damage is not missing)
    first.write_bytes(original)
    assert api.get(path).content == b"".join(parts) + b"more"
    assert api.get("/healthz").status_code == 200


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_snapshot_with_a_flipped_bit_is_never_sent(server: Server, api: httpx.Client, size: int) -> None:
    bucket = f"/snapshot-{size}"
    assert api.put(bucket).status_code == 201
    path, state = f"{bucket}/s", b"s" * size
    make(api, path, BINARY, b"before")
    post(api, path, b"after")
    assert api.put(f"{path}/snapshot/6", headers=BINARY, content=state).status_code == 204
    (blob,) = (server.data_dir / "cold" / "blobs" / bucket[1:]).glob("*/*")
    flipped(blob)
    for place, more in (
        (f"{path}/snapshot/6", {}),
        (f"{path}/snapshot/6", {"range": "bytes=0-1"}),
        (f"{path}/bootstrap", {}),
    ):
        answer = api.get(place, headers=more)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "object_damaged"), place
        assert blob.name in answer.text
    assert api.get(path, params={"offset": "6"}).content == b"after"
    flipped(blob)
    assert api.get(f"{path}/snapshot/6").content == state
    assert [part.body for part in parts_of(api.get(f"{path}/bootstrap"))] == [state, b"after"]
