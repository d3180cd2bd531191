"""Large bodies, while the server is killed and while the store is gone: whole and once, or not at all."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from tests.cold.seaweed import Seaweed
from tests.cold.test_blobs_far import BODY, STATE, published, settings
from tests.conftest import StartServer
from tests.faults.large_bodies import LargeCrowd
from tests.faults.rounds import ROUNDS, seeded
from tests.http.surface import MEBIBYTE
from tests.http.wire import BINARY, post, refused
from tests.server import Server

SETTINGS = {"cold.flush_interval": "300ms", "cold.keep_replaced": "2s"}
COLLECTED_SECONDS_MAX = 60.0


def test_large_bodies_are_never_lost_or_half_there_when_the_server_is_killed(tmp_path: Path) -> None:
    random = seeded("large bodies")
    crowd = LargeCrowd(random)
    server = Server(tmp_path / "data", settings=SETTINGS)
    for _ in range(ROUNDS):
        server.start()
        crowd.make_streams(server)
        crowd.check(server)
        crowd.start(server)
        time.sleep(random.uniform(0.1, 1.5))
        server.kill()
        crowd.finish()
    with server:
        crowd.start(server)
        time.sleep(0.5)
        crowd.finish()
        crowd.check(server)
        assert server.complaints() == []
        assert httpx.post(f"{server.url}/cluster/flush", timeout=60).status_code == 200
        give_up_at = time.monotonic() + COLLECTED_SECONDS_MAX
        blobs = tmp_path / "data" / "cold" / "blobs"
        while blobs.exists():
            assert time.monotonic() < give_up_at, "what the segments have is still there as blobs"
            time.sleep(0.1)
        crowd.check(server)
        assert server.stop() == 0
    assert crowd.acknowledged > ROUNDS


def test_a_store_that_is_gone_is_told_and_what_is_small_goes_on(
    tmp_path: Path, start_server: StartServer
) -> None:
    with Seaweed(tmp_path / "mortal") as mortal:
        server = start_server(**settings(mortal))
        with httpx.Client(base_url=server.url, timeout=60) as client:
            stream = published(client)
            mortal.stop()
            with ThreadPoolExecutor() as pool:  # each is told only when the patience with the store is over
                told = [
                    pool.submit(client.post, stream, headers=BINARY, content=BODY),
                    pool.submit(client.put, f"{stream}/snapshot/11", headers=BINARY, content=STATE),
                    pool.submit(client.get, f"{stream}/snapshot/6"),
                ]
                post(client, stream, b"small")
            for answer in [one.result() for one in told]:
                refused(answer, 503, "store_unavailable")
                assert answer.headers["retry-after"] == "1"
            mortal.start()
            post(client, stream, BODY)
            assert client.get(f"{stream}/snapshot/6").content == STATE
            tail = client.get(stream, params={"offset": "11", "max_bytes": str(16 * MEBIBYTE)})
            assert tail.content == b"small" + BODY
