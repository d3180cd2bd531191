"""Three nodes with two groups: each bucket belongs to one of them, and all nodes have both."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, three_nodes
from tests.http.wire import content, make, post
from tests.waiting import wait_for

from ursula.cold.state.placement import group_of

APPENDS = 60
PIECE = 500


def bucket_of(group: int) -> str:
    """The name of a bucket that belongs to a group."""
    return next(name for number in count() if group_of(name := f"bucket{number}", 2) == group)


BUCKETS = [bucket_of(group) for group in range(2)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    folder = tmp_path_factory.mktemp("cluster")
    with three_nodes(folder, cluster__groups="2", cold__flush_size="4KiB", cold__cache_bytes="0") as nodes:
        for bucket in BUCKETS:
            assert httpx.put(f"{nodes[0].url}/{bucket}").status_code == 201
            with httpx.Client(base_url=nodes[1].url, timeout=60) as api:
                make(api, f"/{bucket}/text")
        yield nodes


def write(node: ClusterNode, mark: str) -> None:
    """Append to a stream of each group in turn."""
    with httpx.Client(base_url=node.url, timeout=60) as api:
        for number in range(APPENDS):
            for bucket in BUCKETS:
                post(api, f"/{bucket}/text", f"{mark}{node.number}-{number};".encode().rjust(PIECE))


def texts(node: ClusterNode, bucket: str) -> list[str]:
    """What was appended to the stream of a bucket, as one node sees it."""
    with httpx.Client(base_url=node.url, timeout=60) as api:
        found = content(api, f"/{bucket}/text").decode()
    return [piece.strip() for piece in found.split(";") if piece]


def groups_of(node: ClusterNode) -> list[dict[str, Any]]:
    """What a node shows of its groups."""
    found: list[dict[str, Any]] = httpx.get(f"{node.url}/cluster/status", timeout=20).json()["groups"]
    return found


def are_in_step(node: ClusterNode) -> bool:
    """Whether all nodes have applied the same entries of both groups with the same outcomes."""
    listed = httpx.get(f"{node.url}/cluster/status", timeout=20).json()["nodes"]
    samples = [one["samples"] for one in listed]
    return len(samples) == 3 and len(samples[0]) == 2 and samples == [samples[0]] * 3


def test_every_node_writes_flushes_and_reads_both_groups_also_after_it_lost_its_disk(
    nodes: list[ClusterNode],
) -> None:
    expected = set()
    for mark, victim in zip("abc", nodes, strict=True):
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(write, nodes, [mark] * 3))
        expected |= {f"{mark}{node.number}-{number}" for node in nodes for number in range(APPENDS)}
        answer = httpx.post(f"{victim.url}/cluster/flush", timeout=60)
        assert answer.status_code == 200, answer.text
        victim.kill()
        victim.wipe()
        victim.start(ready=False)
        victim.wait_until_in_cluster()
        for node in nodes:
            for bucket in BUCKETS:
                found = texts(node, bucket)
                assert set(found) == expected
                assert len(found) == len(expected), "each was appended once"
    for node in nodes:
        assert wait_for(lambda node=node: are_in_step(node))  # type: ignore[misc]
        assert [group["group"] for group in groups_of(node)] == [0, 1]
        assert all(group["snapshot_index"] > 0 for group in groups_of(node)), "both were flushed"
