"""Three real nodes whose processes are killed, frozen, wiped and restarted while clients use all of them.

Each client notes when it asked what and when it was answered, and afterwards every stream must have a history
that one server could have had: nothing acknowledged is lost or doubled, nothing answered as not written is
there, and no answer is older than an earlier one.
"""

import time
from pathlib import Path

import httpx
import pytest
from tests.cluster.three_nodes import three_nodes
from tests.faults.cluster_clients import Clients
from tests.faults.cluster_faults import Faults
from tests.faults.history import Appended
from tests.faults.linearizable import check
from tests.faults.rounds import IS_LONG, ROUNDS, SEED

EVENTS = 4 * ROUNDS if IS_LONG else 2 * ROUNDS


@pytest.mark.timeout(1800)
def test_three_nodes_have_a_history_that_one_server_could_have(tmp_path: Path) -> None:
    print(f"repeat with URSULA_FAULT_SEED={SEED}")
    settings = {"cold__flush_size": "16KiB", "cold__flush_interval": "1s"}
    with three_nodes(tmp_path, **settings) as nodes:
        assert httpx.put(f"{nodes[0].url}/faults").status_code == 201
        clients, faults = Clients(nodes, SEED), Faults(nodes, SEED)
        clients.create_all(nodes[1].url)
        with clients.running():
            time.sleep(1)
            for number in range(EVENTS):
                print(f"{number + 1}: {faults.one()}", flush=True)
                time.sleep(1)
        contents = [clients.read_all(node.url) for node in nodes]
        assert contents[0] == contents[1] == contents[2]
        for node in nodes:
            status = httpx.get(f"{node.url}/cluster/status", timeout=20).json()
            assert status["disagreement"] is None
    acknowledged = 0
    for history in clients.histories.values():
        acknowledged += sum(isinstance(operation.result, Appended) for operation in history)
        check(history)
    assert acknowledged > 20 * EVENTS
    print(f"{acknowledged} acknowledged appends")
