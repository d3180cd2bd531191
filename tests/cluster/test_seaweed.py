"""Three nodes whose store is a real S3 server: flushes, merges, cold reads, lost disks, and who may begin."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, free_blocks, three_nodes
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.http.wire import BINARY, content, make, post
from tests.scrape import scrape
from tests.waiting import wait_for

PIECE = 20_000
ROUNDS = 18
"""Each becomes a segment. The merger waits for sixteen."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A store in S3, from which everything is read again and again."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as seaweed:
        seaweed.bucket("cluster")
        yield {
            "cold__backend": "s3",
            "cold__root": "of/three",
            "cold__s3_bucket": "cluster",
            "cold__s3_endpoint": seaweed.endpoint,
            "cold__s3_access_key_id": ACCESS_KEY_ID,
            "cold__s3_secret_access_key": SECRET_ACCESS_KEY,
            "cold__flush_interval": "1h",
            "cold__cache_bytes": "0",
        }


@pytest.fixture(scope="module")
def nodes(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    with three_nodes(tmp_path_factory.mktemp("cluster"), **settings) as nodes:
        assert httpx.put(f"{nodes[0].url}/shared").status_code == 201
        yield nodes


@contextmanager
def clients_of(nodes: list[ClusterNode]) -> Iterator[list[httpx.Client]]:
    """A client of each."""
    with ExitStack() as stack:
        yield [stack.enter_context(httpx.Client(base_url=node.url, timeout=60)) for node in nodes]


def fetched_bytes(api: httpx.Client) -> float:
    """How much a node has read from the store since its start."""
    return scrape(api)["ursula_cold_fetched_bytes_total"]


def incompressible() -> bytes:
    """A piece that is as large in the store as it is here."""
    return random.randbytes(PIECE)


def check(api: httpx.Client, path: str, expected: bytes) -> None:
    """A node has all of a stream, and reads it from the store."""
    before = fetched_bytes(api)
    assert content(api, path) == expected
    assert fetched_bytes(api) - before >= len(expected)


def test_what_any_node_wrote_is_flushed_merged_and_read_by_all(nodes: list[ClusterNode]) -> None:
    with clients_of(nodes) as apis:
        expected = b""
        make(apis[0], "/shared/pieces")
        for number in range(ROUNDS):
            expected += (piece := incompressible())
            post(apis[number % 3], "/shared/pieces", piece)
            apis[(number + 1) % 3].post("/cluster/flush").raise_for_status()
        assert wait_for(lambda: sum(scrape(api)["ursula_cold_merged_segments_total"] for api in apis) > 0)
        for api in apis:
            check(api, "/shared/pieces", expected)
            assert api.get("/cluster/hot-cold-stats").json()["hot_bytes"] == 0


def test_a_large_body_and_a_snapshot_are_blobs_that_every_node_reads(nodes: list[ClusterNode]) -> None:
    body = bytes(range(256)) * 12_000
    with clients_of(nodes) as apis:
        make(apis[1], "/shared/large", BINARY, body)
        end = str(len(body))
        assert apis[2].put(f"/shared/large/snapshot/{end}", content=body[::-1]).status_code == 204
        for api in apis:
            assert api.get(f"/shared/large/snapshot/{end}").content == body[::-1]
        make(apis[0], "/shared/untrimmed", BINARY, body)
        for api in apis:
            assert content(api, "/shared/untrimmed") == body


def test_a_node_without_its_disk_starts_from_s3(nodes: list[ClusterNode]) -> None:
    victim, *others = nodes
    before, meanwhile = incompressible(), incompressible()
    with clients_of(nodes) as apis:
        make(apis[0], "/shared/before", BINARY, before)
        apis[0].post("/cluster/flush").raise_for_status()
    victim.kill()
    victim.wipe()
    with clients_of(others) as apis:
        post(apis[0], "/shared/before", meanwhile)
        apis[1].post("/cluster/flush").raise_for_status()
    victim.start(ready=False)
    victim.wait_until_in_cluster()
    with clients_of([victim]) as (api,):
        check(api, "/shared/before", before + meanwhile)
        post(api, "/shared/before", b"again")


def test_no_second_cluster_begins_in_the_same_store(
    nodes: list[ClusterNode], settings: dict[str, str], tmp_path: Path
) -> None:
    """Its bootstrap node reaches nobody and has an empty disk, so only the store can tell."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    addresses = [f"127.0.0.1:{port}" for port in free_blocks(3)]
    other = ClusterNode(1, addresses, tmp_path, named)
    other.start(ready=False)
    try:
        assert wait_for(lambda: any("one was begun before" in line for line in other.lines)), other.lines
        assert httpx.get(f"{other.url}/readyz/cluster").status_code == 503
        assert httpx.put(f"{other.url}/mine", timeout=30).status_code == 503
    finally:
        other.kill()
    with clients_of(nodes) as apis:
        assert apis[0].get("/cluster/status").json()["membership"]["voters"] == [1, 2, 3]
