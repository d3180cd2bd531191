"""What the tests of buckets, snapshots, batches and the feed have in common."""

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from tests.cluster.spread_server import any_server
from tests.server import Server
from tests.waiting import wait_for

MEBIBYTE = 1 << 20

_numbers = count()

_IMPATIENCE = {"cold__keep_replaced": "1s", "cold__flush_interval": "200ms"}


def make_bucket(api: httpx.Client) -> str:
    """The path of a new bucket that no other test uses."""
    path = f"/bucket-{next(_numbers)}"
    assert api.put(path).status_code == 201
    return path


def frames(*payloads: bytes) -> bytes:
    """The body of an append batch."""
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def position_of(api: httpx.Client, bucket: str) -> str:
    """Where the feed of a bucket ends."""
    answer = api.get(bucket, params={"offset": "now"})
    assert answer.status_code == 200, answer.text
    return answer.headers["stream-next-offset"]


def lines_of(body: bytes) -> list[dict[str, Any]]:
    """The lines of an NDJSON body."""
    assert not body or body.endswith(b"\n")
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


def feed(api: httpx.Client, bucket: str, after: str = "-1", **query: str) -> list[dict[str, Any]]:
    """What happened in a bucket after a position, read to the end."""
    found: list[dict[str, Any]] = []
    while True:
        answer = api.get(bucket, params={"offset": after, **query})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-ndjson"
        found += lines_of(answer.content)
        after = answer.headers["stream-next-offset"]
        if answer.headers.get("stream-up-to-date") == "true":
            return found


def flush_all(api: httpx.Client) -> None:
    """Flush, and wait until memory holds nothing that is not in the store.

    A flush of what earlier requests appended takes memory too: about as much again as it stores. Whoever
    measures the memory of something else flushes first.
    """
    api.post("/cluster/flush").raise_for_status()
    assert wait_for(lambda: api.get("/cluster/hot-cold-stats").json()["hot_bytes"] == 0)


def blob_files(server: Server, bucket: str = "") -> list[Path]:
    """Every blob below the folder of the store, whole or not; of the whole ones perhaps only a bucket's."""
    cold = server.data_dir / "cold"
    whole = os.walk(cold / f"blobs{bucket}")  # it does not mind what vanishes
    paths = [Path(folder, name) for folder, _, names in whole for name in names]
    return sorted([*paths, *(cold / "tmp").rglob("*.blob")])


def impatient_server(folder: Path, **settings: str) -> Server:
    """A server that removes superseded blobs after a second, not after a day."""
    named = {name.replace("__", "."): value for name, value in (_IMPATIENCE | settings).items()}
    return any_server(folder / "data", settings=named)
