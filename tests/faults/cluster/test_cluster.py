"""Three real nodes on a network of their own: all that can happen to them, while clients use all of them.

Each client notes when it asked what and when it was answered, and afterwards every stream must have a history
that one server could have had: nothing acknowledged is lost or doubled, nothing answered as not written is
there, and no answer is older than an earlier one.
"""

from pathlib import Path

import httpx
import pytest
from tests.faults.cluster.clients import Clients
from tests.faults.cluster.faults import Faults
from tests.faults.cluster.network import is_inside, run_inside
from tests.faults.cluster.site import site, status_of
from tests.faults.history import Appended
from tests.faults.linearizable import check
from tests.faults.rounds import IS_LONG, SEED

EVENTS_MIN = 200 if IS_LONG else 0
SECONDS_MAX = 3600


@pytest.mark.timeout(SECONDS_MAX + 120)
def test_three_nodes_have_a_history_that_one_server_could_have(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if not is_inside():
        run_inside(request.node.nodeid, tmp_path, SECONDS_MAX)
        return
    print(f"repeat with URSULA_FAULT_SEED={SEED}")
    with site(tmp_path) as place:
        nodes = place.nodes
        assert httpx.put(f"{nodes[0].url}/faults").status_code == 201
        clients, faults = Clients(nodes, SEED), Faults(place, SEED)
        clients.create_all(nodes[1].url)
        with clients.running():
            for event in faults.schedule(EVENTS_MIN):
                print(event, flush=True)
        contents = [clients.read_all(node.url) for node in nodes]
        assert contents[0] == contents[1] == contents[2]
        for node in nodes:
            assert status_of(node)["disagreement"] is None
    acknowledged = 0
    for history in clients.histories.values():
        acknowledged += sum(isinstance(operation.result, Appended) for operation in history)
        check(history)
    print(f"{acknowledged} acknowledged appends")
    assert acknowledged > 500
