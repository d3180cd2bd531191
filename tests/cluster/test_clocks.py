"""Three nodes of which one, the keeper, has a clock that runs ahead."""

from pathlib import Path

import httpx
from tests.cluster.three_nodes import ClusterNode, free_blocks, keeper_of, running
from tests.waiting import wait_for

TEXT = {"content-type": "text/plain"}


def append(node: ClusterNode) -> int:
    return httpx.post(f"{node.url}/shared/text", content="x", headers=TEXT, timeout=20).status_code


def test_a_node_whose_clock_is_ahead_writes_nothing_until_it_is_right_again(tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_blocks(3)]
    settings = {"cold.shared_fs": "true", "cold.root": str(tmp_path / "store")}
    nodes = [ClusterNode(n, addresses, tmp_path, settings, movable_clock=True) for n in (1, 2, 3)]
    with running(nodes):
        assert wait_for(lambda: keeper_of(nodes) is not None)
        fast = keeper_of(nodes)
        assert fast is not None
        others = [node for node in nodes if node is not fast]
        assert httpx.put(f"{nodes[0].url}/shared").status_code == 201
        lives = {**TEXT, "stream-ttl": "1800"}
        for name in ("text", "quiet"):
            assert httpx.put(f"{nodes[1].url}/shared/{name}", headers=lives).status_code == 201

        fast.pass_time(1)
        assert append(fast) == 204

        fast.pass_time(2)  # 3 s in all
        assert wait_for(lambda: "at least" in httpx.get(f"{fast.url}/readyz/local").text)
        not_ready = httpx.get(f"{fast.url}/readyz/local")
        assert not_ready.status_code == 503
        assert "the clock of this node is at least 2." in not_ready.json()["reason"]
        assert "s ahead of the median of the nodes" in not_ready.json()["reason"]
        assert httpx.get(f"{fast.url}/readyz/cluster").status_code == 503
        assert append(fast) == 503
        assert "this node writes nothing: the clock" in "".join(fast.lines)
        assert wait_for(lambda: keeper_of(others) in others), "it could not even flush"
        assert httpx.post(f"{fast.url}/cluster/flush", timeout=30).status_code == 503
        assert httpx.post(f"{others[0].url}/cluster/flush", timeout=30).status_code == 200

        fast.kill()
        fast.pass_time(3597)  # an hour in all: the streams would have expired
        fast.start(ready=False)
        assert wait_for(lambda: "this node writes nothing: the clock" in "".join(fast.lines))
        assert wait_for(lambda: "at least" in httpx.get(f"{fast.url}/readyz/local").text)
        assert append(fast) == 503

        def problems() -> list[str | None]:
            listed = httpx.get(f"{others[0].url}/cluster/status").json()["nodes"]
            return [one["clock_problem"] for one in listed]

        assert wait_for(lambda: str(problems()).count("ahead of the median") == 1)
        assert [append(node) for node in others] == [204, 204]

        fast.pass_time(-3600)
        assert wait_for(lambda: append(fast) == 204)
        assert "the clock of this node is right" in "".join(fast.lines)
        fast.wait_until_in_cluster()
        assert wait_for(lambda: problems() == [None, None, None])
        assert [httpx.get(f"{node.url}/shared/quiet").status_code for node in nodes] == [200] * 3


def test_a_clock_that_jumps_ahead_while_the_node_runs_ends_no_stream(tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_blocks(3)]
    settings = {"cold.shared_fs": "true", "cold.root": str(tmp_path / "store")}
    nodes = [ClusterNode(n, addresses, tmp_path, settings, movable_clock=True) for n in (1, 2, 3)]
    with running(nodes):
        assert httpx.put(f"{nodes[0].url}/shared").status_code == 201
        lives = {**TEXT, "stream-ttl": "1800"}
        assert httpx.put(f"{nodes[0].url}/shared/text", headers=lives).status_code == 201
        jumping = nodes[2]
        for _ in range(3):
            assert wait_for(lambda: append(jumping) == 204)
            jumping.pass_time(3600)
            refused = httpx.post(f"{jumping.url}/shared/text", content="x", headers=TEXT, timeout=20)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "unavailable"
            assert httpx.get(f"{nodes[0].url}/shared/text").status_code == 200
            jumping.pass_time(-3600)
        assert "the clock of this node jumped ahead by 3600.0 s" in "".join(jumping.lines)
        for node in nodes:
            node.pass_time(3600)  # as if they had been suspended together
        assert wait_for(lambda: httpx.get(f"{jumping.url}/shared/text", timeout=20).status_code == 404)
