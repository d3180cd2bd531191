"""Whether all nodes have the same: the same entries applied with the same outcomes, and the same rows."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from tests.cluster.three_nodes import ClusterNode
from tests.faults.cluster.site import status_of

SAME_SECONDS_MAX = 60.0


def check_replicas(nodes: Sequence[ClusterNode]) -> None:
    """Wait until all nodes have come equally far; then their running hashes and their rows are the same."""
    give_up_at = time.monotonic() + SAME_SECONDS_MAX
    while not _are_equally_far(nodes):
        assert time.monotonic() < give_up_at, [status_of(node) for node in nodes]
        time.sleep(0.2)
    assert [status_of(node)["disagreement"] for node in nodes] == [None] * len(nodes)
    first, *others = [list(_rows_of(node)) for node in nodes]
    for node, rows in zip(nodes[1:], others, strict=True):
        different = [two for two in zip(first, rows, strict=False) if two[0] != two[1]]
        assert rows == first, (node.number, len(first), len(rows), different[:3])


def _are_equally_far(nodes: Sequence[ClusterNode]) -> bool:
    """Whether all have applied everything that any of them knows of, with the same outcomes."""
    found = [status_of(node) for node in nodes]
    tail = max(status["last_log_index"] for status in found)
    samples = [report["samples"] for status in found for report in status["nodes"]]
    is_same = len(samples) == len(nodes) ** 2 and all(sample == samples[0] for sample in samples)
    return is_same and samples[0][0]["position"] == tail


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
