"""What an operator may ask of a node, and what a single node answers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.faults.long_log import write_long_log
from tests.http.wire import BINARY, TEXT, make, post, refused
from tests.server import Server

STATUS_FIELDS = {
    "node_id",
    "leader_id",
    "term",
    "state",
    "membership",
    "last_log_index",
    "last_applied_index",
    "snapshot_index",
    "purged_index",
    "payload_ready",
    "recovery_complete",
}


@pytest.fixture(scope="module")
def own(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server that nobody else talks to."""
    with httpx.Client(base_url=start_server("--node-id", "7").url, timeout=20) as client:
        yield client


@pytest.mark.parametrize("path", ["/readyz/local", "/readyz/cluster"])
def test_a_single_node_is_a_cluster_that_is_ready(own: httpx.Client, path: str) -> None:
    answer = own.get(path)
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    assert answer.headers["cache-control"] == "no-store"


def test_a_single_node_leads_itself(own: httpx.Client) -> None:
    before = own.get("/cluster/status").json()
    assert STATUS_FIELDS | {"cluster", "generation", "groups"} == before.keys()
    assert (before["node_id"], before["leader_id"], before["term"], before["state"]) == (7, 7, 1, "leader")
    assert before["membership"] == {"voters": [7], "learners": []}
    assert (before["payload_ready"], before["recovery_complete"]) == (True, True)
    assert (before["snapshot_index"], before["purged_index"]) == (0, 0)
    (group,) = before["groups"]
    assert group.keys() == STATUS_FIELDS | {"group"}
    assert {name: before[name] for name in STATUS_FIELDS} | {"group": 0} == group
    make(own, "/v1/stream/status", TEXT)
    after = own.get("/cluster/status").json()
    assert after["last_log_index"] == after["last_applied_index"] == before["last_log_index"] + 1


def test_the_status_names_the_data(start_server: StartServer) -> None:
    server = start_server()
    identity = json.loads((server.data_dir / "ursula.json").read_text())
    status = httpx.get(f"{server.url}/cluster/status").json()
    assert (status["cluster"], status["generation"]) == (identity["cluster"], identity["generation"])
    volatile = httpx.get(f"{start_server('--log', 'memory').url}/cluster/status").json()
    assert volatile["cluster"] not in ("", status["cluster"])


def test_the_status_is_there_while_the_log_is_replayed(tmp_path: Path) -> None:
    write_long_log(tmp_path / "data", messages=400_000)
    server = Server(tmp_path / "data").start(ready=False)
    try:
        with httpx.Client(base_url=server.url, timeout=20) as api:
            status = api.get("/cluster/status").json()
            assert status.keys() >= STATUS_FIELDS
            assert (status["payload_ready"], status["recovery_complete"]) == (False, False)
            unready = api.get("/readyz/cluster")
            assert unready.status_code == 503
            assert unready.json()["reason"]
            assert 0 <= unready.json()["progress"] < 1
            for path in ("/cluster/hot-cold-stats", "/cluster/buckets", "/cluster/nothing"):
                refused(api.get(path), 503, "unavailable")
            server.wait_until_ready()
            status = api.get("/cluster/status").json()
            assert (status["payload_ready"], status["recovery_complete"]) == (True, True)
            assert status["last_applied_index"] == status["last_log_index"]
            assert api.get("/readyz/cluster").status_code == 200
    finally:
        server.kill()


def test_the_statistics_name_the_largest_streams(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server().url, timeout=20) as api:
        empty = api.get("/cluster/hot-cold-stats").json()
        assert empty == {
            "hot_bytes": 0,
            "cold_bytes": 0,
            "streams": [],
            "flush_backlog": {"bytes": 0, "oldest_ms": 0},
            "backpressure": {"active": False, "reason": None},
            "caches": {},
        }
        began = time.time()
        for number in range(110):
            make(api, f"/v1/stream/stats-{number % 3}/{number}", BINARY, b"x" * number)
        make(api, "/v1/stream/stats-a/b/c", BINARY, b"x" * 1000)
        found = api.get("/cluster/hot-cold-stats").json()
        assert found["streams"][0] == {"bucket_id": "stats-a", "stream_id": "b/c", "hot_bytes": 1000}
        sizes = [stream["hot_bytes"] for stream in found["streams"]]
        assert sizes == [1000, *range(109, 10, -1)]
        assert found["hot_bytes"] >= 1000 + sum(range(110))
        assert found["flush_backlog"]["bytes"] == found["hot_bytes"]  # there is no cold tier to flush to
        assert 0 <= found["flush_backlog"]["oldest_ms"] <= (time.time() - began) * 1000 + 1


def test_buckets_are_listed_page_by_page(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server().url, timeout=20) as api:
        assert api.get("/cluster/buckets").json() == {"buckets": [], "next_cursor": None, "has_more": False}
        before = time.time() * 1000
        names = sorted(f"bucket-{number:02}" for number in range(25))
        for name in reversed(names):
            assert api.put(f"/{name}").status_code == 201
        make(api, "/bucket-03/a", TEXT)
        make(api, "/bucket-03/b", TEXT)
        everything = api.get("/cluster/buckets").json()
        assert [bucket["bucket_id"] for bucket in everything["buckets"]] == names
        assert everything["buckets"][3]["streams"] == 2
        assert all(
            bucket.keys() == {"bucket_id", "streams", "created_at_ms"} for bucket in everything["buckets"]
        )
        assert all(
            before - 1 <= bucket["created_at_ms"] <= time.time() * 1000 for bucket in everything["buckets"]
        )
        assert (everything["next_cursor"], everything["has_more"]) == ("bucket-24", False)
        found: list[str] = []
        parameters: dict[str, str] = {"limit": "10"}
        while True:
            page = api.get("/cluster/buckets", params=parameters).json()
            found += [bucket["bucket_id"] for bucket in page["buckets"]]
            if not page["has_more"]:
                break
            parameters["after"] = page["next_cursor"]
        assert found == names


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1.5", "٣"])
def test_a_page_of_buckets_has_1_to_1000(own: httpx.Client, limit: str) -> None:
    refused(own.get("/cluster/buckets", params={"limit": limit}), 400, "invalid_parameter")


@pytest.mark.parametrize("path", ["/cluster/trigger-snapshot", "/cluster/purge-log", "/cluster/flush"])
def test_what_needs_the_cold_tier_says_so(own: httpx.Client, path: str) -> None:
    answer = own.post(path)
    refused(answer, 409, "not_available")
    assert "cold tier" in answer.json()["error"]["message"]
    refused(own.get(path), 405, "method_not_allowed")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"node_id": 7}', b'{"node_id": null}', b" \n"])
def test_one_node_cannot_hand_over(own: httpx.Client, body: bytes) -> None:
    answer = own.post("/cluster/transfer-leader", content=body)
    refused(answer, 409, "not_available")
    assert "only one" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b'{"node_id": "7"}', b'{"node_id": 1.5}', b'{"node_id": true}', b"\xff"]
)
def test_a_transfer_that_cannot_be_understood(own: httpx.Client, body: bytes) -> None:
    refused(own.post("/cluster/transfer-leader", content=body), 400, "invalid_json")


def test_a_transfer_to_a_node_that_is_not_there(own: httpx.Client) -> None:
    refused(own.post("/cluster/transfer-leader", json={"node_id": 8}), 400, "invalid_parameter")


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "HEAD"])
@pytest.mark.parametrize(
    "path", ["/cluster/", "/cluster/nothing", "/cluster/status/more", "/cluster/streams"]
)
def test_there_is_nothing_else_below_cluster(own: httpx.Client, method: str, path: str) -> None:
    answer = own.request(method, path)
    if method == "HEAD":
        assert answer.status_code == 404
    else:
        refused(answer, 404, "route_not_found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/cluster/status", "GET, HEAD, OPTIONS"),
        ("/cluster/hot-cold-stats", "GET, HEAD, OPTIONS"),
        ("/cluster/buckets", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
        ("/readyz/cluster", "GET, HEAD, OPTIONS"),
    ],
)
def test_what_is_only_shown_cannot_be_changed(own: httpx.Client, path: str, allowed: str) -> None:
    for method in ("PUT", "POST", "DELETE"):
        answer = own.request(method, path)
        refused(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


def test_appends_go_on_while_the_statistics_are_made(own: httpx.Client) -> None:
    make(own, "/v1/stream/meanwhile", TEXT)
    for _ in range(20):
        assert own.get("/cluster/hot-cold-stats").status_code == 200
        post(own, "/v1/stream/meanwhile", b"x", TEXT)
