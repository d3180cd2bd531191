"""Three nodes act as one server: any node takes any request, and any node may be lost."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, three_nodes
from tests.http.staged import arrow
from tests.scrape import Scrape

from ursula.spark.http_client import ServerClient

TEXT = {"content-type": "text/plain"}
HELD_SECONDS_MAX = 8.0
"""How long a write may be held while a node fails: less than `cluster.write_wait`, after which it is refused.
On a quiet machine it is two seconds."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """A cluster for all tests of this file; each test leaves all nodes running.

    Its live reads end only if a node ends them, and idle ones are silent.
    """
    settings = {"cold__flush_size": "64KiB", "http__sse_cycle": "10m", "http__sse_heartbeat": "10m"}
    with three_nodes(tmp_path_factory.mktemp("cluster"), **settings) as nodes:
        assert httpx.put(f"{nodes[0].url}/shared").status_code == 201
        yield nodes


@pytest.fixture
def stream(nodes: list[ClusterNode], request: pytest.FixtureRequest) -> str:
    """The path of a new stream."""
    path = f"/shared/{request.node.name}"
    assert httpx.put(nodes[1].url + path, headers=TEXT).status_code == 201
    return path


def append(node: ClusterNode, path: str, text: str) -> httpx.Response:
    return httpx.post(node.url + path, content=text, headers=TEXT, timeout=20)


def content(node: ClusterNode, path: str) -> str:
    """Everything in a stream, as one node sees it."""
    text, offset = "", "-1"
    while True:
        answer = httpx.get(node.url + path, params={"offset": offset}, timeout=20)
        assert answer.status_code == 200, answer.text
        text += answer.text
        offset = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return text


@contextmanager
def writing(nodes: list[ClusterNode], path: str) -> Iterator[dict[str, float]]:
    """Append by all of these nodes at once; afterwards, what was acknowledged and how long each took."""
    acknowledged: dict[str, float] = {}
    stopping = threading.Event()

    def write(node: ClusterNode) -> None:
        number = 0
        while not stopping.is_set():
            text = f"{node.number}-{number};"
            began_at = time.monotonic()
            answer = append(node, path, text)
            assert answer.status_code == 204, answer.text
            acknowledged[text] = time.monotonic() - began_at
            number += 1
            time.sleep(0.005)

    threads = [threading.Thread(target=write, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def check_complete(nodes: list[ClusterNode], path: str, acknowledged: dict[str, float]) -> None:
    """Every node has each acknowledged append once, and all have the same."""
    seen = [content(node, path) for node in nodes]
    assert len(set(seen)) == 1
    parts = [part + ";" for part in seen[0].split(";") if part]
    assert len(parts) == len(set(parts))
    assert set(acknowledged) <= set(parts)


@contextmanager
def restarted_with(node: ClusterNode, name: str, value: str) -> Iterator[None]:
    """A node with another setting, until the block ends."""
    variable = "URSULA_" + name.upper().replace(".", "__")
    node._environment[variable] = value
    try:
        restart(node)
        yield
    finally:
        del node._environment[variable]
        restart(node)


def restart(node: ClusterNode) -> None:
    node.stop()
    node.start(ready=False)
    node.wait_until_in_cluster()


@contextmanager
def frozen(nodes: list[ClusterNode]) -> Iterator[None]:
    """Let nodes do nothing, with their connections open, until the block ends."""
    processes = [process for node in nodes for process in (node.process.pid, node.etcd)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    for node in nodes:
        node.wait_until_in_cluster()


def leader_of(nodes: list[ClusterNode]) -> ClusterNode:
    """The node whose member leads."""
    status = httpx.get(f"{nodes[0].url}/cluster/status").json()
    return next(node for node in nodes if node.number == status["leader_id"])


def are_equal(samples: list[list[dict[str, Any]]]) -> bool:
    """Whether all nodes have applied the same entries with the same outcomes."""
    (first,), *others = samples
    return all(other == [first] for other in others) and first["entries"] > 0 and len(first["hash"]) == 32


def etcd_leader(node: ClusterNode) -> int:
    """The number of the member that leads, as the etcd of a node says it now; 0 if there is none."""
    host, port = node.address.split(":")
    answer = httpx.post(f"http://{host}:{int(port) + 1}/v3/maintenance/status", json={}, timeout=5).json()
    return int(answer.get("leader", 0))


def keeper_count(nodes: list[ClusterNode]) -> float:
    """How many of the nodes are the keeper, by their metrics."""
    found = [Scrape(httpx.get(f"{node.url}/metrics", timeout=20).text) for node in nodes]
    return sum(one["ursula_keeper"] for one in found)


def reason_of(node: ClusterNode) -> str:
    """Why a node is not a ready part of the cluster; empty if it is."""
    return str(httpx.get(f"{node.url}/readyz/cluster", timeout=5).json().get("reason", ""))


def flush_problem(node: ClusterNode) -> str | None:
    """Why the keeper could not flush, as a node shows it."""
    found = httpx.get(f"{node.url}/cluster/hot-cold-stats", timeout=20).json()["flush_problem"]
    return None if found is None else str(found)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def test_a_write_on_one_node_is_seen_at_once_on_all(nodes: list[ClusterNode], stream: str) -> None:
    expected = ""
    for number in range(30):
        text = f"{number};"
        answer = append(nodes[number % 3], stream, text)
        assert answer.status_code == 204
        expected += text
        reader = nodes[(number + 1) % 3]
        assert content(reader, stream) == expected
        head = httpx.head(reader.url + stream)
        assert head.headers["stream-next-offset"] == answer.headers["stream-next-offset"]
    missing = httpx.get(f"{nodes[2].url}/shared/nothing?offset=-1")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "stream_not_found")


def test_a_live_read_on_one_node_sees_what_another_one_writes(nodes: list[ClusterNode], stream: str) -> None:
    with httpx.stream("GET", f"{nodes[0].url}{stream}?offset=now&live=sse", timeout=20) as events:
        lines = events.iter_lines()
        assert next(lines) == "event: control"
        append(nodes[2], stream, "news")
        assert "data:news" in lines


def test_a_flush_on_any_node_reaches_the_keeper(nodes: list[ClusterNode], stream: str) -> None:
    for number in range(20):
        append(nodes[number % 3], stream, f"{number};" + "x" * 10_000)
    for node in nodes:
        answer = httpx.post(f"{node.url}/cluster/flush", timeout=30)
        assert answer.status_code == 200, answer.text
    assert content(nodes[1], stream).count(";") == 20


def test_a_flush_that_fails_is_refused_by_every_node(nodes: list[ClusterNode], stream: str) -> None:
    state = nodes[0].data_dir.parents[1] / "store" / "state" / "g0"
    append(nodes[0], stream, "kept;")
    assert httpx.post(f"{nodes[0].url}/cluster/flush", timeout=60).status_code == 200
    append(nodes[0], stream, "more;")
    state.rename(state.with_name("away"))
    state.touch()
    try:
        for node in nodes:
            answer = httpx.post(f"{node.url}/cluster/flush", timeout=60)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
            until(lambda node=node: flush_problem(node) is not None)  # type: ignore[misc]
    finally:
        state.unlink()
        state.with_name("away").rename(state)
    for node in nodes:
        assert httpx.post(f"{node.url}/cluster/flush", timeout=60).status_code == 200
    assert content(nodes[1], stream) == "kept;more;"


def test_the_status_names_the_leader_the_voters_and_every_node(nodes: list[ClusterNode]) -> None:
    def is_complete() -> bool:
        status = httpx.get(f"{nodes[1].url}/cluster/status").json()
        return (
            status["membership"] == {"voters": [1, 2, 3], "learners": []}
            and [node["node_id"] for node in status["nodes"]] == [1, 2, 3]
            and sum(node["leads"] for node in status["nodes"]) == 1
            and sum(node["is_keeper"] for node in status["nodes"]) == 1
            and are_equal([node["samples"] for node in status["nodes"]])
        )

    until(is_complete)


def test_the_status_names_no_leader_while_no_member_answers(nodes: list[ClusterNode]) -> None:
    def status() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{nodes[0].url}/cluster/status", timeout=20).json()
        return found

    until(lambda: status()["leader_id"] is not None)
    etcds = [node.etcd for node in nodes]
    for etcd in etcds:
        os.kill(etcd, signal.SIGSTOP)
    try:
        until(lambda: status()["leader_id"] is None)
        assert status()["membership"] == {"voters": [1, 2, 3], "learners": []}
        assert not any(one["leads"] for one in status()["nodes"])
    finally:
        for etcd in etcds:
            os.kill(etcd, signal.SIGCONT)
    for node in nodes:
        node.wait_until_in_cluster()
    until(lambda: status()["leader_id"] is not None)


def test_the_status_has_every_nodes_address_version_position_lag_and_role(
    nodes: list[ClusterNode], stream: str
) -> None:
    append(nodes[0], stream, "x")
    asked = nodes[2]

    def in_step() -> bool:
        status = httpx.get(f"{asked.url}/cluster/status").json()
        position = status["last_applied_index"]
        return all(one["positions"] == [position] and one["lag"] == 0 for one in status["nodes"])

    until(in_step)
    status = httpx.get(f"{asked.url}/cluster/status").json()
    assert (status["node_id"], status["generation"], status["disagreement"]) == (3, 1, None)
    assert status["state"] == ("leader" if status["leader_id"] == 3 else "follower")
    for node, listed in zip(nodes, status["nodes"], strict=True):
        assert listed["node_id"] == node.number
        assert listed["address"] == node.address
        assert listed["version"] == version("ursula")
        assert listed["leads"] == (node.number == status["leader_id"])
        assert listed["clock_problem"] is None
        assert listed["raft"]["index"] >= listed["raft"]["applied_index"] > 0
    (keeper,) = [listed["node_id"] for listed in status["nodes"] if listed["is_keeper"]]
    assert keeper_count([nodes[keeper - 1]]) == 1


def test_the_metrics_show_who_leads_who_keeps_and_how_etcd_answers(nodes: list[ClusterNode]) -> None:
    def found() -> list[Scrape]:
        return [Scrape(httpx.get(f"{node.url}/metrics", timeout=20).text) for node in nodes]

    for name in ("ursula_raft_is_leader", "ursula_keeper"):
        until(lambda name=name: sum(one[name] for one in found()) == 1)  # type: ignore[misc]
    until(lambda: all(one["ursula_raft_voters"] == 3 for one in found()))
    for one in found():
        assert one["ursula_raft_has_leader"] == 1
        assert one["ursula_raft_term"] >= 1
        assert one.value("ursula_raft_rpc_requests_total", outcome="answered") > 0
        assert one["ursula_raft_rpc_last_success_age_seconds"] < 10
        assert one["ursula_raft_snapshot_load_duration_seconds_count"] >= 1
        assert {sample.labels["node"] for sample in one.families["ursula_raft_index"].samples} == set("123")


def test_the_lead_moves_when_asked(nodes: list[ClusterNode]) -> None:
    before = leader_of(nodes)
    after = next(node for node in nodes if node is not before)
    answer = httpx.post(f"{nodes[0].url}/cluster/transfer-leader", json={"node_id": after.number}, timeout=20)
    assert (answer.status_code, answer.json()) == (200, {"leader_id": after.number})
    until(lambda: leader_of(nodes) is after)
    unknown = httpx.post(f"{nodes[0].url}/cluster/transfer-leader", json={"node_id": 7})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "invalid_parameter")


def test_a_node_that_leaves_writes_to_the_leader_redirects(
    nodes: list[ClusterNode], stream: str, request: pytest.FixtureRequest
) -> None:
    redirecting, leader = nodes[2], nodes[0]
    with restarted_with(redirecting, "server.write_only_leader", "true"):
        httpx.post(f"{leader.url}/cluster/transfer-leader", json={"node_id": leader.number}, timeout=20)
        until(lambda: leader_of([redirecting, *nodes]) is leader)
        answer = httpx.post(f"{redirecting.url}{stream}?a=b", content="x;", headers=TEXT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (307, "not_leader")
        assert answer.headers["location"] == f"{leader.url}{stream}?a=b"
        followed = httpx.post(redirecting.url + stream, content="x;", headers=TEXT, follow_redirects=True)
        assert followed.status_code == 204
        assert content(redirecting, stream) == "x;"
        deleted = f"{stream}-deleted"
        for method in ("PUT", "DELETE"):
            followed = httpx.request(method, redirecting.url + deleted, headers=TEXT, follow_redirects=True)
            assert followed.is_success, followed.text
        body = {"bucket": "shared", "stream": deleted.rpartition("/")[2]}
        answer = httpx.post(f"{redirecting.url}/cluster/undelete", json=body)
        assert (answer.status_code, answer.headers["location"]) == (307, f"{leader.url}/cluster/undelete")
        assert httpx.post(answer.headers["location"], json=body, timeout=20).status_code == 200
        spark = ServerClient(redirecting.url, 0)
        bulk = {"bucket": "shared", "app": request.node.name, "version": 1}
        staged = spark.stage("shared", arrow([(stream.rpartition("/")[2], b"rows;")]))
        assert spark.ingest(bulk | {"objects": [staged]})["appended"] == 1
        assert content(redirecting, stream) == "x;rows;"
        httpx.post(f"{leader.url}/cluster/transfer-leader", json={"node_id": 3}, timeout=20)
        until(lambda: append(redirecting, stream, "y;").status_code == 204)


def test_a_node_without_a_majority_says_only_what_it_knows(nodes: list[ClusterNode], stream: str) -> None:
    alone, others = nodes[0], nodes[1:]
    append(others[0], stream, "known;")
    assert content(alone, stream) == "known;"
    bucket = stream.rpartition("/")[0]
    with httpx.stream("GET", f"{alone.url}{stream}?offset=-1&live=sse", timeout=60) as events:
        received = events.iter_text()
        text = next(received)
        for other in others:
            other.kill()

        def ask(request: tuple[str, str]) -> tuple[int, str]:
            """The status, and what is known of the end: that it is the tail, or why nothing is."""
            method, path = request
            answer = httpx.request(method, alone.url + path, timeout=8)
            if answer.is_success or method == "HEAD":
                return answer.status_code, answer.headers.get("stream-up-to-date", "")
            return answer.status_code, answer.json()["error"]["code"]

        expected = {
            ("GET", f"{stream}?offset=-1&max_bytes=3"): (200, ""),
            ("GET", f"{stream}?offset=-1"): (200, ""),
            ("GET", f"{stream}?offset=-1&live=long-poll"): (200, ""),
            ("GET", f"{bucket}?offset=-1"): (200, ""),
            ("HEAD", stream): (503, ""),
            ("GET", f"{stream}?offset=now"): (503, "unavailable"),
            ("GET", f"{stream}?offset=now&live=long-poll"): (503, "unavailable"),
            ("GET", f"{stream}?offset=-1&live=sse"): (503, "unavailable"),
            ("GET", f"{stream}?offset=999"): (503, "unavailable"),
            ("GET", f"{bucket}/unknown?offset=-1"): (503, "unavailable"),
            ("GET", f"{bucket}?offset=now&live=sse"): (503, "unavailable"),
            ("GET", f"{bucket}/streams"): (503, "unavailable"),
            ("GET", "/cluster/buckets"): (503, "unavailable"),
            ("GET", f"/cluster/plan?bucket={bucket[1:]}"): (503, "unavailable"),
        }
        with ThreadPoolExecutor(len(expected)) as threads:
            found = dict(zip(expected, threads.map(ask, expected), strict=True))
        assert found == expected
        for path in ("/readyz/local", "/readyz/cluster"):
            until(lambda path=path: httpx.get(alone.url + path).status_code == 503)  # type: ignore[misc]
        text += "".join(received)  # until it ends
    assert "known;" in text
    assert text.endswith("\n\n"), "it ended at an event boundary"
    for other in others:
        other.start(ready=False)
    for node in nodes:
        node.wait_until_in_cluster()
    assert append(alone, stream, "more;").status_code == 204
    assert content(alone, stream) == "known;more;"
    with httpx.stream("GET", f"{alone.url}{stream}?offset=now&live=sse", timeout=20) as events:
        assert next(events.iter_lines()) == "event: control"


def test_a_local_read_needs_no_majority(nodes: list[ClusterNode], stream: str) -> None:
    local, others = nodes[2], nodes[:2]
    with restarted_with(local, "http.reads", "local"):
        append(others[0], stream, "known;")
        until(lambda: httpx.get(f"{local.url}{stream}?offset=-1").text == "known;")
        assert content(local, stream) == "known;"
        with frozen(others):

            def read() -> httpx.Response:
                return httpx.get(f"{local.url}{stream}?offset=-1", timeout=1)

            until(lambda: "stream-up-to-date" not in read().headers)
            assert (read().status_code, read().text) == (200, "known;")
            assert httpx.head(local.url + stream, timeout=1).headers["stream-next-offset"].endswith("6")
        until(lambda: "stream-up-to-date" in read().headers)


def test_a_killed_node_costs_no_acknowledged_write(nodes: list[ClusterNode], stream: str) -> None:
    victim = leader_of(nodes)
    others = [node for node in nodes if node is not victim]
    append(victim, stream, "first;")
    with writing(others, stream) as acknowledged:
        time.sleep(0.5)
        victim.kill()
        time.sleep(4)
    assert max(acknowledged.values()) < HELD_SECONDS_MAX
    victim.start(ready=False)
    victim.wait_until_in_cluster()
    check_complete(nodes, stream, acknowledged | {"first;": 0.0})


def test_an_etcd_that_dies_alone_is_started_again(nodes: list[ClusterNode], stream: str) -> None:
    victim = leader_of(nodes)
    with writing(nodes, stream) as acknowledged:
        time.sleep(0.5)
        os.kill(victim.etcd, signal.SIGKILL)
        time.sleep(3)
    assert max(acknowledged.values()) < HELD_SECONDS_MAX
    victim.wait_until_in_cluster()
    check_complete(nodes, stream, acknowledged)


def test_a_frozen_node_holds_up_no_other(nodes: list[ClusterNode], stream: str) -> None:
    victim = nodes[2]
    others = nodes[:2]
    etcd = victim.etcd
    with writing(others, stream) as acknowledged:
        time.sleep(0.5)
        for process in (victim.process.pid, etcd):
            os.kill(process, signal.SIGSTOP)
        time.sleep(8)
        for process in (victim.process.pid, etcd):
            os.kill(process, signal.SIGCONT)
    assert max(acknowledged.values()) < HELD_SECONDS_MAX
    victim.wait_until_in_cluster()
    check_complete(nodes, stream, acknowledged)


def test_a_node_says_why_it_is_not_a_ready_part_of_the_cluster(nodes: list[ClusterNode]) -> None:
    victim = next(node for node in nodes if node is not leader_of(nodes))
    others = [node.etcd for node in nodes if node is not victim]
    os.kill(victim.etcd, signal.SIGSTOP)
    until(lambda: reason_of(victim) == "this node's etcd does not answer")
    os.kill(victim.etcd, signal.SIGCONT)
    until(lambda: reason_of(victim) == "")
    for etcd in others:
        os.kill(etcd, signal.SIGSTOP)
    until(lambda: reason_of(victim) == "etcd has no leader")
    until(lambda: "etcd has not answered for 1" in reason_of(victim))
    for etcd in others:
        os.kill(etcd, signal.SIGCONT)
    for node in nodes:
        node.wait_until_in_cluster()


def test_a_node_that_lost_its_disk_comes_back(nodes: list[ClusterNode], stream: str) -> None:
    victim = nodes[0]  # the one that began the cluster
    append(victim, stream, "before;")
    victim.kill()
    victim.wipe()
    assert append(nodes[1], stream, "meanwhile;").status_code == 204
    victim.start(ready=False)
    victim.wait_until_in_cluster()
    check_complete(nodes, stream, {"before;": 0.0, "meanwhile;": 0.0})


def test_a_node_that_stops_hands_everything_over_first(nodes: list[ClusterNode], stream: str) -> None:
    leaving = leader_of(nodes)
    others = [node for node in nodes if node is not leaving]
    assert httpx.put(f"{others[0].url}{stream}-quiet", headers=TEXT).status_code == 201
    with writing(nodes, f"{stream}-quiet") as quiet:
        time.sleep(2)
    with writing(others, stream) as acknowledged:
        until(lambda: len(acknowledged) > 20)
        before = etcd_leader(others[0])
        leaving.process.send_signal(signal.SIGTERM)
        while etcd_leader(others[0]) in (before, 0):
            assert leaving.process.poll() is None, "it has ended before it handed over"
            time.sleep(0.01)
        assert leaving.process.wait(30) == 0
        leaving.kill()  # so that everything that it logged is read
        count = len(acknowledged)
        until(lambda: len(acknowledged) > count + 20)
    # A machine that is busy holds up writes anyway.
    assert max(acknowledged.values()) < max(0.5, 3 * max(quiet.values()))
    said = [entry["message"] for entry in leaving.log]
    assert said.index("stopped") > max(
        place for place, text in enumerate(said) if re.fullmatch(r"node \d is the leader now", text)
    )
    status = httpx.get(f"{others[0].url}/cluster/status").json()
    assert status["leader_id"] != leaving.number
    until(lambda: keeper_count(others) == 1)
    leaving.start(ready=False)
    leaving.wait_until_in_cluster()
    check_complete(nodes, stream, acknowledged)


def test_everything_survives_a_kill_of_all_nodes(nodes: list[ClusterNode], stream: str) -> None:
    with writing(nodes, stream) as acknowledged:
        time.sleep(1)
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start(ready=False)
    for node in nodes:
        node.wait_until_in_cluster()
    check_complete(nodes, stream, acknowledged)


def test_a_folder_of_a_single_node_does_not_become_one_of_a_cluster(
    nodes: list[ClusterNode], tmp_path: Path
) -> None:
    (tmp_path / "data" / "log").mkdir(parents=True)
    addresses = [f"{node.host}:{node.port}" for node in nodes]
    lonely = ClusterNode(1, addresses, tmp_path, {"cold.shared_fs": "true", "cold.root": str(tmp_path)})
    lonely._command[lonely._command.index("--data-dir") + 1] = str(tmp_path / "data")
    finished = subprocess.run(lonely._command, env=lonely._environment, capture_output=True, text=True)
    assert finished.returncode == 1
    assert "is that of a single node, which cannot become part of a cluster by itself" in finished.stderr
