"""`ursula restore` of a cluster's store: nobody writes to the old log any more, and all nodes continue."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, three_nodes
from tests.waiting import wait_for

TEXT = {"content-type": "text/plain"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ClusterNode]]:
    with three_nodes(tmp_path, cold__flush_interval="1h") as nodes:
        assert httpx.put(f"{nodes[0].url}/shared").status_code == 201
        assert httpx.put(f"{nodes[1].url}/shared/text", headers=TEXT).status_code == 201
        assert append(nodes[2], "flushed;").status_code == 204
        assert httpx.post(f"{nodes[1].url}/cluster/flush", timeout=30).status_code == 200
        yield nodes


def append(node: ClusterNode, text: str) -> httpx.Response:
    return httpx.post(f"{node.url}/shared/text", content=text, headers=TEXT, timeout=20)


def content(node: ClusterNode) -> str:
    return httpx.get(f"{node.url}/shared/text?offset=-1", timeout=20).text


def restore(*options: str, of: ClusterNode | None = None, kill_at: str = "") -> tuple[int, str]:
    """The exit code and everything that it said. `of` is the node whose settings the command gets."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("URSULA_")}
    if of is not None:
        environment |= {name: value for name, value in of._environment.items() if name.startswith("URSULA_")}
        environment["URSULA_SERVER__LISTEN"] = of.address
    code = "from ursula.cli import app; app()"
    if kill_at:
        restoring = "import os, ursula.engine.offline.restore as restoring"
        code = f"{restoring}; restoring.{kill_at} = lambda *_, **__: os._exit(9); {code}"
    command = [sys.executable, "-c", code, "restore", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + " ".join(done.stderr.split())


def wait_for_line(node: ClusterNode, text: str) -> None:
    assert wait_for(lambda: text in "".join(node.lines)), node.lines[-10:]


def check_continues(nodes: list[ClusterNode], generation: int) -> None:
    """Every node has what was flushed and nothing else, and all go on."""
    for node in nodes:
        assert content(node) == "flushed;"
        assert httpx.get(f"{node.url}/cluster/status").json()["generation"] == generation
    for number, node in enumerate(nodes):
        answer = append(node, f"{number};")
        assert answer.status_code == 204, answer.text
    assert {content(node) for node in nodes} == {"flushed;0;1;2;"}


def test_a_restore_ends_the_log_and_the_nodes_continue_from_it(
    nodes: list[ClusterNode], tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    for node in nodes:
        assert append(node, "lost;").status_code == 204

    code, said = restore("--from", store)
    assert code == 1
    assert "is in use: node " in said
    assert "`ursula restore --take-over`, which ends the log of the cluster test" in said
    code, said = restore("--from", store, "--take-over")
    assert code == 1
    assert "belongs to the cluster test" in said
    assert "--config" in said
    assert "--log-is-gone" in said
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", store, copy], check=True)
    code, said = restore("--from", str(copy), of=nodes[1])
    assert code == 1
    assert "belongs to another store" in said
    code, said = restore("--from", str(copy), "--data-dir", str(tmp_path / "single"), of=nodes[1])
    assert code == 2
    assert "leave --data-dir out" in said
    code, said = restore("--from", str(copy), "--data-dir", str(tmp_path / "single"), "--log-is-gone")
    assert code == 0, said
    assert '"etcd": ""' in (copy / "generations" / "2.json").read_text(), "it belongs to a single node now"
    code, said = restore("--from", str(copy), "--log-is-gone")
    assert code == 1
    assert "is the store of a single node" in said
    assert append(nodes[0], "lost too;").status_code == 204

    # Killed when the log is ended, and before the store knows: nothing is written until it is repeated.
    code, said = restore("--from", store, "--take-over", of=nodes[1], kill_at="_begin")
    assert code == 9, said
    for node in nodes:
        answer = append(node, "never;")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        reason = "the log is in generation 2, and this node in 1: the store of the cluster was restored"
        assert reason in answer.json()["error"]["message"]
    nodes[2].kill()
    nodes[2].start(ready=False)
    wait_for_line(
        nodes[2], "to generation 2 was begun and not finished: run `ursula restore --take-over` again"
    )

    # Killed when the store knows, and before it has a beginning: no node can run until it is repeated.
    code, said = restore("--from", store, "--take-over", of=nodes[1], kill_at="_store_base")
    assert code == 9, said
    for node in nodes[:2]:
        assert node.process.wait(40) == 1
        wait_for_line(
            node, "the store is in generation 2, and this node in 1: it was restored elsewhere. Start"
        )
    code, said = restore("--from", store, "--take-over", of=nodes[1])  # although no majority of etcd runs
    assert code == 0, said
    assert "start it with   ursula serve on every node of test, as before" in said
    for node in nodes:
        node.kill()
        node.start(ready=False)
    for node in nodes:
        node.wait_until_in_cluster()
    check_continues(nodes, 3)


def test_a_node_that_starts_during_a_restore_joins_when_it_is_finished(
    nodes: list[ClusterNode], tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    code, said = restore("--from", store, "--take-over", of=nodes[1], kill_at="_begin")
    assert code == 9, said
    nodes[2].kill()
    nodes[2].start(ready=False)
    wait_for_line(nodes[2], "to generation 2 was begun and not finished")
    code, said = restore("--from", store, "--take-over", of=nodes[1])
    assert code == 0, said
    for node in nodes[:2]:
        assert node.process.wait(40) == 1
        node.kill()
        node.start(ready=False)
    for node in nodes:
        node.wait_until_in_cluster()
    check_continues(nodes, 2)


def test_a_cluster_whose_etcds_are_lost_begins_anew_from_the_store(
    nodes: list[ClusterNode], tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    for node in nodes:
        node.stop()
    code, said = restore("--from", store, of=nodes[0])
    assert code == 1
    assert "cannot be ended (no member of etcd answers" in said
    assert "start most of the nodes, and restore with --take-over while they run" in said
    assert "--log-is-gone" in said
    code, said = restore("--from", store, "--log-is-gone", of=nodes[0])
    assert code == 0, said
    assert "Move the data folders of all nodes away" in said

    for node in nodes:  # one that is started too early says what is wrong
        node.start(ready=False)
    for node in nodes:
        assert node.process.wait(40) == 1
        wait_for_line(node, "was restored to generation 2 because the log of the cluster was gone")
        node.kill()
    for node in nodes:
        node.wipe()
        node.start(ready=False)
    for node in nodes:
        node.wait_until_in_cluster()
    check_continues(nodes, 2)
    nodes[0].kill()
    nodes[0].wipe()  # the one that began it does not begin another one
    nodes[0].start(ready=False)
    nodes[0].wait_until_in_cluster()
    assert content(nodes[0]) == "flushed;0;1;2;"
