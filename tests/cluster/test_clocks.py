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
        lives = {**TEXT, "stream-ttl": "50"}
        assert httpx.put(f"{nodes[1].url}/shared/text", headers=lives).status_code == 201

        fast.pass_time(1)
        assert append(fast) == 204

        fast.pass_time(2)  # 3 s in all
        assert wait_for(lambda: httpx.get(f"{fast.url}/readyz/local").status_code == 503)
        reason = httpx.get(f"{fast.url}/readyz/local").json()["reason"]
        assert "the clock of this node is at least 2." in reason
        assert "s ahead of the median of the nodes" in reason
        assert httpx.get(f"{fast.url}/readyz/cluster").status_code == 503
        assert append(fast) == 503
        assert "this node writes nothing: the clock" in "".join(fast.lines)
        assert wait_for(lambda: keeper_of(others) in others), "it could not even flush"
        assert httpx.post(f"{fast.url}/cluster/flush", timeout=30).status_code == 503
        assert httpx.post(f"{others[0].url}/cluster/flush", timeout=30).status_code == 200

        fast.kill()
        fast.pass_time(57)  # 60 s in all: the stream would have expired
        fast.start(ready=False)
        assert wait_for(lambda: "this node writes nothing: the clock" in "".join(fast.lines))
        assert wait_for(lambda: "at least" in httpx.get(f"{fast.url}/readyz/local").text)
        assert append(fast) == 503

        def problems() -> list[str | None]:
            listed = httpx.get(f"{others[0].url}/cluster/status").json()["nodes"]
            return [one["clock_problem"] for one in listed]

        assert wait_for(lambda: str(problems()).count("ahead of the median") == 1)
        assert [append(node) for node in others] == [204, 204]

        fast.pass_time(-60)
        assert wait_for(lambda: append(fast) == 204)
        assert "the clock of this node is right again" in "".join(fast.lines)
        fast.wait_until_in_cluster()
        assert wait_for(lambda: problems() == [None, None, None])
