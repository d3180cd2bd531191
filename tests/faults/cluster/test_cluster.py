"""Three real nodes on a network of their own: all that can happen to them, while clients use all of them.

Each client notes when it asked what and when it was answered, and afterwards every stream must have a history
that one server could have had: nothing acknowledged is lost or doubled, nothing answered as not written is
there, and no answer is older than an earlier one.
"""

from pathlib import Path

import pytest
from tests.faults.cluster.crowd import Crowd
from tests.faults.cluster.faults import Faults
from tests.faults.cluster.network import is_inside, run_inside
from tests.faults.cluster.replicas import check_replicas
from tests.faults.cluster.site import site
from tests.faults.rounds import IS_LONG, seeded

EVENTS_MIN = 200 if IS_LONG else 1
SECONDS_MAX = 5400 if IS_LONG else 900


@pytest.mark.timeout(SECONDS_MAX + 120)
def test_three_nodes_have_a_history_that_one_server_could_have(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if not is_inside():
        run_inside(request.node.nodeid, tmp_path, SECONDS_MAX)
        return
    random = seeded("cluster")
    with site(tmp_path) as place:
        faults = Faults(place, random)
        number = 0
        while faults.count < EVENTS_MIN:
            number += 1
            crowd = Crowd(f"round-{number}", place.addresses, random)
            crowd.begin()
            trimmed = place.trimmed
            with crowd.working():
                for event in faults.happen():
                    crowd.look()
                    print(event, flush=True)
            check_replicas(place.nodes)
            crowd.check()
            assert crowd.acknowledged > 200
            assert place.trimmed > trimmed, "the log was not trimmed"
            print(
                f"{crowd.acknowledged} acknowledged appends; nodes fell behind {place.fell_behind} times",
                flush=True,
            )
        last = random.choice(place.nodes)
        last.kill()
        last.wipe()
        last.start(ready=False)
        last.wait_until_in_cluster()
        check_replicas(place.nodes)
        crowd.check()
        if IS_LONG:
            assert place.fell_behind, "no node was ever so far behind that it lacked entries of the log"
