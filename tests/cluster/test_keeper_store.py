"""Three nodes of which one, the keeper, can no longer reach the store."""

from pathlib import Path

import httpx
from tests.cluster.three_nodes import ClusterNode, free_blocks, keeper_of, running
from tests.waiting import wait_for

TEXT = {"content-type": "text/plain"}


def flush(node: ClusterNode) -> tuple[int, str]:
    """What a request for a flush is answered with."""
    answer = httpx.post(f"{node.url}/cluster/flush", timeout=60)
    return answer.status_code, answer.text


def test_a_keeper_that_cannot_reach_the_store_leaves_its_role_to_a_node_that_can(tmp_path: Path) -> None:
    store, addresses = tmp_path / "store", [f"127.0.0.1:{port}" for port in free_blocks(3)]
    store.mkdir()
    nodes = []
    for number in (1, 2, 3):
        mounted = tmp_path / f"mounted-{number}"
        mounted.symlink_to(store)
        settings = {"cold.shared_fs": "true", "cold.root": str(mounted)}
        nodes.append(ClusterNode(number, addresses, tmp_path, settings))
    with running(nodes):
        assert wait_for(lambda: keeper_of(nodes) is not None)
        keeper = keeper_of(nodes)
        assert keeper is not None
        others = [node for node in nodes if node is not keeper]
        assert httpx.put(f"{keeper.url}/shared").status_code == 201
        assert httpx.put(f"{keeper.url}/shared/text", headers=TEXT).status_code == 201
        assert flush(others[0])[0] == 200

        mounted = tmp_path / f"mounted-{keeper.number}"
        mounted.unlink()
        mounted.write_text("this is no folder")
        append = httpx.post(f"{keeper.url}/shared/text", content="kept", headers=TEXT)
        assert append.status_code == 204
        status, text = flush(others[0])
        assert (status, "mounted-" in text) == (503, True), text

        assert wait_for(lambda: flush(others[0])[0] == 200)
        assert wait_for(lambda: keeper_of(others) in others)
        assert "this node is no longer the keeper: the store " in "".join(keeper.lines)
        mounted.unlink()
        mounted.symlink_to(store)
        for node in nodes:
            assert httpx.get(f"{node.url}/shared/text?offset=-1", timeout=20).text == "kept"
