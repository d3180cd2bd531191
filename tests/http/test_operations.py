"""What an operator may ask of a node, and what a single node answers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.faults.long_log import write_long_log
from tests.http.wire import BINARY, TEXT, content, make, post, refused
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
    "disagreement",
}

NOTHING_CACHED = {"held_bytes": 0, "hits": 0, "misses": 0, "evicted": 0}


@pytest.fixture(scope="module")
def own(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server that nobody else talks to."""
    with httpx.Client(base_url=start_server("--node-id", "7").url, timeout=60) as client:
        yield client


@pytest.mark.one_node("asks a single node about itself")
@pytest.mark.parametrize("path", ["/readyz/local", "/readyz/cluster"])
def test_a_single_node_is_a_cluster_that_is_ready(own: httpx.Client, path: str) -> None:
    answer = own.get(path)
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.one_node("asks a single node about itself")
def test_a_single_node_leads_itself(own: httpx.Client) -> None:
    before = own.get("/cluster/status").json()
    assert STATUS_FIELDS | {"cluster", "generation", "groups", "nodes", "reason"} == before.keys()
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


@pytest.mark.one_node("looks into the folder of one node")
def test_the_status_names_the_data(start_server: StartServer) -> None:
    server = start_server()
    identity = json.loads((server.data_dir / "ursula.json").read_text())
    status = httpx.get(f"{server.url}/cluster/status", timeout=60).json()
    assert (status["cluster"], status["generation"]) == (identity["cluster"], identity["generation"])
    volatile = httpx.get(f"{start_server('--log', 'memory').url}/cluster/status", timeout=60).json()
    assert volatile["cluster"] not in ("", status["cluster"])


@pytest.mark.one_node("its own server is one process")
def test_the_status_is_there_while_the_log_is_replayed(tmp_path: Path) -> None:
    write_long_log(tmp_path / "data", messages=400_000)
    server = Server(tmp_path / "data").start(ready=False)
    try:
        with httpx.Client(base_url=server.url, timeout=60) as api:
            status = api.get("/cluster/status").json()
            assert status.keys() >= STATUS_FIELDS
            assert (status["payload_ready"], status["recovery_complete"]) == (False, False)
            assert status["reason"] == "the log is being replayed"
            unready = api.get("/readyz/cluster")
            assert unready.status_code == 503
            assert unready.json()["reason"]
            assert 0 <= unready.json()["progress"] < 1
            for path in ("/cluster/hot-cold-stats", "/cluster/buckets", "/cluster/nothing"):
                refused(api.get(path), 503, "unavailable")
            server.wait_until_ready()
            status = api.get("/cluster/status").json()
            assert (status["payload_ready"], status["recovery_complete"]) == (True, True)
            assert status["reason"] is None
            assert status["last_applied_index"] == status["last_log_index"]
            assert api.get("/readyz/cluster").status_code == 200
    finally:
        server.kill()


def test_the_statistics_name_the_largest_streams(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server(cold__flush_interval="1h").url, timeout=60) as api:
        empty = api.get("/cluster/hot-cold-stats").json()
        assert empty == {
            "hot_bytes": 0,
            "recent_bytes": 0,
            "cold_bytes": 0,
            "streams": [],
            "parked_streams": 0,
            "ended_streams": 0,
            "segments": 0,
            "payload_bytes": 0,
            "flush_backlog": {"bytes": 0, "oldest_ms": 0},
            "flush_problem": None,
            "backpressure": {"active": False, "reason": None},
            "caches": {
                "row_groups": NOTHING_CACHED | {"bytes_max": 256 << 20},
                "spools": NOTHING_CACHED | {"bytes_max": 8 << 30},
            },
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
        assert found["flush_backlog"]["bytes"] == found["hot_bytes"]
        assert 0 <= found["flush_backlog"]["oldest_ms"] <= (time.time() - began) * 1000 + 1


def test_buckets_are_listed_page_by_page(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server().url, timeout=60) as api:
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


@pytest.mark.one_node("asks a single node about itself")
@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1.5", "٣"])
def test_a_page_of_buckets_has_1_to_1000(own: httpx.Client, limit: str) -> None:
    refused(own.get("/cluster/buckets", params={"limit": limit}), 400, "invalid_parameter")


@pytest.mark.one_node("asks one node about its memory and caches")
def test_a_flush_moves_everything_out_of_memory(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, "/v1/stream/flushed/a", BINARY, b"x" * 5000)
        make(api, "/v1/stream/flushed/b", BINARY, b"y" * 3000)
        written = api.get("/cluster/status").json()
        assert (written["snapshot_index"], written["purged_index"]) == (0, 0)
        answer = api.post("/cluster/flush")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        (group,) = answer.json()["groups"]
        assert group["group"] == 0
        assert group["position"] >= written["last_log_index"]
        status = api.get("/cluster/status").json()
        assert status["snapshot_index"] == status["groups"][0]["snapshot_index"] == group["position"]
        found = until_stored(api)
        assert (found["segments"], found["payload_bytes"], found["streams"]) == (1, 8000, [])
        assert 0 < found["cold_bytes"] < 8000
        assert found["flush_backlog"] == {"bytes": 0, "oldest_ms": 0}
        assert found["parked_streams"] == 2
        manifests = list((server.data_dir / "cold" / "manifests" / "g0").glob("*.json"))
        assert [int(path.name.partition("-")[0]) for path in manifests] == [group["position"]]
        assert content(api, "/v1/stream/flushed/a") == b"x" * 5000
        read = api.get("/cluster/hot-cold-stats").json()["caches"]["row_groups"]
        assert read["misses"] > 0
        assert read["held_bytes"] > 0
        assert server.complaints() == []


def until_stored(api: httpx.Client) -> dict[str, Any]:
    """The statistics once memory has let go of what is in the store, which it does bit by bit."""
    give_up_at = time.monotonic() + 60
    while True:
        found: dict[str, Any] = api.get("/cluster/hot-cold-stats").json()
        if found["hot_bytes"] == 0:
            return found
        assert time.monotonic() < give_up_at, found
        time.sleep(0.01)


def test_a_flush_of_nothing_is_done_at_once(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server().url, timeout=60) as api:
        for _ in range(3):
            (group,) = api.post("/cluster/flush").json()["groups"]
            assert group["group"] == 0


def test_a_snapshot_of_the_state_is_written_soon(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        for name in ("a", "b"):
            make(api, f"/v1/stream/{name}", TEXT, b"x")
            api.post("/cluster/flush").raise_for_status()
        before = newest_manifest(server)
        assert [state["base"] for state in before["state"]] == [True, False]
        answer = api.post("/cluster/trigger-snapshot")
        assert (answer.status_code, answer.content) == (202, b"")
        give_up_at = time.monotonic() + 60
        while newest_manifest(server) == before:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        assert [state["base"] for state in newest_manifest(server)["state"]] == [True]


def newest_manifest(server: Server) -> dict[str, Any]:
    """What the newest manifest says."""
    newest = max((server.data_dir / "cold" / "manifests" / "g0").glob("*.json"))
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


@pytest.mark.one_node("looks into the folder of one node")
def test_the_log_is_purged_up_to_the_last_manifest(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h", limits__log_segment_bytes="64KiB")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        assert api.post("/cluster/purge-log").json() == {"purged_index": 0}
        make(api, "/v1/stream/purged", BINARY)
        for _ in range(4):
            post(api, "/v1/stream/purged", b"x" * 40_000)
        (group,) = api.post("/cluster/flush").json()["groups"]
        assert api.get("/cluster/status").json()["purged_index"] == 0  # one manifest could be damaged
        answer = api.post("/cluster/purge-log")
        assert answer.status_code == 200
        purged = answer.json()["purged_index"]
        assert 0 < purged <= group["position"]
        assert api.get("/cluster/status").json()["purged_index"] == purged
        assert len(list((server.data_dir / "log" / "g0").glob("*.log"))) == 1
    server.kill()
    with httpx.Client(base_url=server.start().url, timeout=60) as api:
        assert content(api, "/v1/stream/purged") == b"x" * 160_000


@pytest.mark.one_node("asks a single node about itself")
@pytest.mark.parametrize(
    "path", ["/cluster/trigger-snapshot", "/cluster/purge-log", "/cluster/flush", "/cluster/undelete"]
)
def test_what_an_operator_does_is_a_post(own: httpx.Client, path: str) -> None:
    answer = own.get(path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST, OPTIONS"


@pytest.mark.one_node("asks a single node about itself")
@pytest.mark.parametrize("body", [b"", b"{}", b'{"node_id": 7}', b'{"node_id": null}', b" \n"])
def test_one_node_cannot_hand_over(own: httpx.Client, body: bytes) -> None:
    answer = own.post("/cluster/transfer-leader", content=body)
    refused(answer, 409, "not_available")
    assert "only node" in answer.json()["error"]["message"]


@pytest.mark.one_node("asks a single node about itself")
@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b'{"node_id": "7"}', b'{"node_id": 1.5}', b'{"node_id": true}', b"\xff"]
)
def test_a_transfer_that_cannot_be_understood(own: httpx.Client, body: bytes) -> None:
    refused(own.post("/cluster/transfer-leader", content=body), 400, "invalid_json")


@pytest.mark.one_node("asks a single node about itself")
def test_a_transfer_to_a_node_that_is_not_there(own: httpx.Client) -> None:
    refused(own.post("/cluster/transfer-leader", json={"node_id": 8}), 400, "invalid_parameter")


@pytest.mark.one_node("asks a single node about itself")
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


@pytest.mark.one_node("asks a single node about itself")
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


@pytest.mark.one_node("asks a single node about itself")
def test_appends_go_on_while_the_statistics_are_made(own: httpx.Client) -> None:
    make(own, "/v1/stream/meanwhile", TEXT)
    for _ in range(20):
        assert own.get("/cluster/hot-cold-stats").status_code == 200
        post(own, "/v1/stream/meanwhile", b"x", TEXT)
