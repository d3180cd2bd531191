"""A node that has not joined its cluster yet: it waits, and says what for and how etcd is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, cluster_of, free_blocks
from tests.scrape import Scrape
from tests.waiting import wait_for

TEXT = {"content-type": "text/plain"}
JOINING = "this node is joining the cluster, and waits for "


def status_of(node: ClusterNode) -> dict[str, Any]:
    answer = httpx.get(f"{node.url}/cluster/status", timeout=20)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def metrics_of(node: ClusterNode) -> Scrape:
    answer = httpx.get(f"{node.url}/metrics", timeout=20)
    assert answer.status_code == 200, answer.text
    return Scrape(answer.text)


def ask_etcd(node: ClusterNode, path: str, **body: object) -> dict[str, Any]:
    """Call the node's etcd, without its node."""
    host, port = node.address.split(":")
    answer = httpx.post(f"http://{host}:{int(port) + 1}/v3/maintenance/{path}", json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def declare(node: ClusterNode, action: str) -> None:
    """Have etcd behave as if its database had exceeded its quota, until this is taken back."""
    member = ask_etcd(node, "status")["header"]["member_id"]
    ask_etcd(node, "alarm", action=action, alarm="NOSPACE", memberID=member)


@contextmanager
def alone(folder: Path, **settings: str) -> Iterator[ClusterNode]:
    """The second of three nodes, which cannot begin the cluster. Nothing else runs."""
    addresses = [f"127.0.0.1:{port}" for port in free_blocks(3)]
    store = {"cold.shared_fs": "true", "cold.root": str(folder / "store")}
    node = ClusterNode(2, addresses, folder, store | settings)
    node.start(ready=False)
    try:
        yield node
    finally:
        node.kill()


def test_a_node_that_cannot_join_says_why_and_serves_nothing_else(tmp_path: Path) -> None:
    with alone(tmp_path, **{"cors.origins": "*"}) as node:
        assert wait_for(lambda: "has not begun the cluster yet" in status_of(node)["reason"])
        status = status_of(node)
        assert status["reason"].startswith(JOINING)
        assert (status["node_id"], status["leader_id"], status["state"]) == (2, None, "follower")
        assert (status["payload_ready"], status["recovery_complete"]) == (False, False)
        assert status["membership"] == {"voters": [], "learners": []}
        assert (status["cluster"], status["generation"]) == (None, None)
        assert (status["nodes"], status["groups"]) == ([], [])
        assert (status["last_log_index"], status["last_applied_index"]) == (0, 0)
        metrics = metrics_of(node)
        assert (metrics["ursula_raft_has_leader"], metrics["ursula_rehydrate_complete"]) == (0, 0)
        assert metrics["ursula_raft_voters"] == 0
        assert metrics.value("ursula_raft_rpc_requests_total", outcome="failed") > 0
        assert metrics["ursula_http_connections"] >= 1
        assert metrics["process_open_fds"] > 0
        assert httpx.get(f"{node.url}/healthz").json() == {"status": "ok"}
        for path in ("/readyz/local", "/readyz/cluster"):
            answer = httpx.get(node.url + path)
            assert (answer.status_code, answer.json()["ready"]) == (503, False)
            assert answer.json()["reason"].startswith(JOINING)
        for path in ("/healthz", "/cluster/status", "/metrics"):
            assert (httpx.head(node.url + path).status_code, httpx.head(node.url + path).content) == (
                200,
                b"",
            )
        refused = [
            ("POST", "/cluster/status"),
            ("POST", "/cluster/flush"),
            ("GET", "/chat/s"),
            ("PUT", "/chat"),
        ]
        for method, path in refused:
            answer = httpx.request(method, node.url + path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["message"].startswith(JOINING)
        page = {"origin": "https://page.example"}
        allowed = {
            path: "access-control-allow-origin" in httpx.get(node.url + path, headers=page).headers
            for path in ("/chat/s", "/cluster/status")
        }
        assert allowed == {"/chat/s": True, "/cluster/status": False}, "a page may not act as an operator"
        assert node.stop() == 0, "\n".join(node.lines[-30:])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClusterNode]:
    with cluster_of(1, tmp_path) as (node,):
        yield node


def test_a_node_that_starts_while_etcd_is_full_waits_until_there_is_room(node: ClusterNode) -> None:
    assert httpx.put(f"{node.url}/chat").status_code == 201
    assert httpx.put(f"{node.url}/chat/s", content="kept", headers=TEXT).status_code == 201
    declare(node, "ACTIVATE")
    node.kill()
    node.start(ready=False)
    assert wait_for(lambda: "database space exceeded" in status_of(node)["reason"])
    assert wait_for(lambda: status_of(node)["leader_id"] == 1)
    status = status_of(node)
    assert (status["state"], status["membership"]["voters"]) == ("leader", [1])
    metrics = metrics_of(node)
    assert (metrics["ursula_raft_has_leader"], metrics["ursula_raft_voters"]) == (1, 1)
    assert metrics["ursula_raft_database_bytes"] > 0
    assert httpx.get(f"{node.url}/readyz/cluster").status_code == 503
    declare(node, "DEACTIVATE")
    node.wait_until_in_cluster()
    assert httpx.post(f"{node.url}/chat/s", content=" more", headers=TEXT, timeout=20).status_code == 204
    assert httpx.get(f"{node.url}/chat/s?offset=-1").text == "kept more"
    assert status_of(node)["reason"] is None
