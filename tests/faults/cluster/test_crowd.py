"""The crowd finds nothing wrong with a server that is right, and notices what nobody wrote."""

from pathlib import Path

import httpx
import pytest
from tests.faults.cluster.crowd import Crowd
from tests.faults.linearizable import NotLinearizable
from tests.faults.rounds import seeded
from tests.faults.writers import JSON, TEXT
from tests.http.raw import Place
from tests.server import Server
from tests.waiting import wait_for

AGAIN = b'{"w": "json", "n": 1, "part": 0, "parts": 1}'


def test_the_crowd_accepts_a_right_server_and_notices_what_nobody_wrote(tmp_path: Path) -> None:
    settings = {"cold.flush_size": "64KiB", "cold.flush_interval": "1s"}
    with Server(tmp_path / "data", settings=settings) as server:
        place = Place(server.host, server.port)
        crowd = Crowd("crowd", [place, place], seeded("crowd"))
        crowd.begin()
        with crowd.working():
            assert wait_for(lambda: crowd.acknowledged > 200)
        crowd.check()
        with httpx.Client(base_url=server.url, timeout=60) as api:
            assert api.post("/crowd/lasting-1", content=b"<nobody>", headers=TEXT).status_code == 204
            with pytest.raises(NotLinearizable, match="<nobody>"):
                crowd.check()
            assert api.post("/crowd/json", content=AGAIN, headers=JSON).status_code == 204
            with pytest.raises(AssertionError, match="twice, or out of order"):
                crowd.check()
