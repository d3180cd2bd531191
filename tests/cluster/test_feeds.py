"""A consumer of a feed may take its position to any node after each page: it sees every event once."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, three_nodes
from tests.http.surface import feed, make_bucket
from tests.http.test_feed import Line, consume, identity
from tests.http.wire import JSON, make, post
from tests.scrape import scrape

APPENDS = 150
FLUSHES_MIN = 5
WAYS = ("", "&live=long-poll&timeout_ms=100", "&live=sse")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """Nodes that move everything to the store at once, and whose live reads are short."""
    settings = {
        "cold__flush_size": "4KiB",
        "cold__flush_interval": "50ms",
        "cold__cache_bytes": "0",
        "http__sse_cycle": "0.2s",
    }
    with three_nodes(tmp_path_factory.mktemp("cluster"), **settings) as nodes:
        yield nodes


def write(node: ClusterNode, bucket: str) -> None:
    """Append to a stream of this node's writer, and to one that all share."""
    with httpx.Client(base_url=node.url, timeout=60) as api:
        make(api, f"{bucket}/{node.number}", JSON)
        for number in range(APPENDS):
            text = json.dumps(f"{node.number}-{number}").encode()
            post(api, f"{bucket}/{node.number}", text, JSON)
            post(api, f"{bucket}/shared", text, JSON)


def wander(nodes: list[ClusterNode], bucket: str, way: str, written: threading.Event) -> list[Line]:
    """Read to the end, each page from the next node."""
    found: list[Line] = []
    position = "-1"
    for node in cycle(nodes):
        is_last = written.is_set()
        query = f"offset={position}&max_bytes=3000{way}"
        lines, position, _ = consume(node, bucket, query, position, None)
        found += lines
        if is_last and not lines:
            return found
    raise AssertionError("there are nodes without end")


def test_a_consumer_that_wanders_between_nodes_sees_every_event_once(nodes: list[ClusterNode]) -> None:
    with httpx.Client(base_url=nodes[0].url, timeout=60) as api:
        bucket = make_bucket(api)
        make(api, f"{bucket}/shared", JSON)
    written = threading.Event()
    with ThreadPoolExecutor(6) as threads:
        consumers = [threads.submit(wander, nodes, bucket, way, written) for way in WAYS]
        try:
            writers = [threads.submit(write, node, bucket) for node in nodes]
            for writer in writers:
                writer.result(120)
        finally:
            written.set()
        wandered = [consumer.result(60) for consumer in consumers]
    apis = [httpx.Client(base_url=node.url, timeout=60) for node in nodes]
    at_home = [feed(api, bucket) for api in apis]
    assert sum(scrape(api)["ursula_cold_flushes_total"] for api in apis) >= FLUSHES_MIN
    for api in apis:
        api.close()
    events = at_home[0]
    assert len(set(map(identity, events))) == len(events)
    for found in [*at_home, *wandered]:
        assert found == events
    texts = [(line["stream"], line["value"]) for line in events if line["kind"] == "append"]
    for node in nodes:
        expected = [f"{node.number}-{number}" for number in range(APPENDS)]
        assert [text for stream, text in texts if stream == str(node.number)] == expected
        mine = [text for stream, text in texts if stream == "shared" and text[0] == str(node.number)]
        assert mine == expected
