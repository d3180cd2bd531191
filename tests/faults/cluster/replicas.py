"""Whether all nodes have the same: the same entries applied with the same outcomes, and the same rows."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from tests.cluster.three_nodes import ClusterNode
from tests.faults.cluster.site import status_of

SAME_SECONDS_MAX = 60.0


def check_replicas(nodes: Sequence[ClusterNode]) -> None:
    """Wait until all nodes have come equally far; then their running hashes and their rows are the same.

    Streams that end by themselves go on changing the rows for a while.
    """
    give_up_at = time.monotonic() + SAME_SECONDS_MAX
    before = _same_samples(nodes)
    while True:
        rows = [list(_rows_of(node)) for node in nodes]
        after = _same_samples(nodes)
        if before is not None and after == before:
            break
        assert time.monotonic() < give_up_at, [status_of(node) for node in nodes]
        before = after
    assert [status_of(node)["disagreement"] for node in nodes] == [None] * len(nodes)
    for node, found in zip(nodes, rows, strict=True):
        different = [two for two in zip(rows[0], found, strict=False) if two[0] != two[1]]
        assert found == rows[0], (node.number, len(rows[0]), len(found), different[:3])


def _same_samples(nodes: Sequence[ClusterNode]) -> list[dict[str, Any]] | None:
    """The sample of all nodes, if all have applied everything that any knows of, with the same outcomes."""
    found = [status_of(node) for node in nodes]
    tail = max(status["last_log_index"] for status in found)
    samples = [report["samples"] for status in found for report in status["nodes"]]
    if len(samples) < len(nodes) ** 2 or any(sample != samples[0] for sample in samples):
        return None
    return samples[0] if samples[0][0]["position"] == tail else None


def _rows_of(node: ClusterNode) -> Iterator[Any]:
    """What a node says of all buckets, and of all their streams and segments."""
    with httpx.Client(base_url=node.url, timeout=60) as api:
        for bucket in _pages(api, "/cluster/buckets", "buckets"):
            yield bucket
            path = f"/{bucket['bucket_id']}"
            for stream in _pages(api, f"{path}/streams", "streams"):
                yield stream
                headers = api.head(f"{path}/{stream['stream_id']}").headers
                yield sorted((name, value) for name, value in headers.items() if name.startswith("stream-"))
            plan = api.get("/cluster/plan", params={"bucket": bucket["bucket_id"]}).json()
            yield plan["position"], plan["segments"]


def _pages(api: httpx.Client, path: str, name: str) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = api.get(path, params={"after": after}).json()
        yield from page[name]
        after = page["next_cursor"]
        if not page["has_more"]:
            return
