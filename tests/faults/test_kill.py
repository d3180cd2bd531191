"""kill -9 at any moment: what was acknowledged is there, once and in order."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

import pytest
from tests.faults.client import Client
from tests.faults.long_log import expected_tail, write_long_log
from tests.faults.rounds import ROUNDS, seeded
from tests.faults.writers import BINARY, Crowd
from tests.server import Server, ServerExited

MESSAGES = 300_000
SMALL_SEGMENTS = {"limits.log_segment_bytes": "64KiB"}


def test_nothing_acknowledged_is_lost_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    random = seeded("kill")
    crowd = Crowd(random)
    server = Server(tmp_path / "data", settings=SMALL_SEGMENTS)
    log = tmp_path / "data" / "log" / "g0"
    first: list[Path] = []
    for number in range(ROUNDS):
        server.start()
        first = first or list(log.glob("*.log"))
        assert server.complaints() == []
        crowd.make_streams(server)
        crowd.check(server, sample=50)
        crowd.start(server)
        time.sleep(random.uniform(0.02, 0.8))
        server.kill()
        crowd.finish()
        if number % 3 == 1:
            # And once more at any moment of the start.
            server.start(ready=False)
            time.sleep(random.uniform(0, 0.1))
            server.kill()
    with server:
        crowd.start(server)
        time.sleep(0.2)
        crowd.finish()
        crowd.check(server)
        assert server.complaints() == []
        assert server.stop() == 0
    assert crowd.acknowledged > 10 * ROUNDS
    segments = list(log.glob("*.log"))
    is_trimmed = not set(first) & set(segments)  # of what was flushed
    assert is_trimmed or len(segments) > ROUNDS, "the log never rolled"


def test_nothing_acknowledged_is_lost_when_the_server_is_killed_while_it_rolls_a_segment(
    tmp_path: Path,
) -> None:
    random = seeded("roll")
    crowd = Crowd(random)
    server = Server(tmp_path / "data", settings=SMALL_SEGMENTS)
    log = tmp_path / "data" / "log" / "g0"
    rounds = caught = 0
    while rounds < ROUNDS // 3 or (caught == 0 and rounds < 30):
        rounds += 1
        server.start()
        crowd.make_streams(server)
        crowd.check(server, sample=20)
        crowd.start(server)
        wait_for_roll(log, skip=random.randrange(4))
        server.process.kill()
        caught += (log / "unborn").exists()
        server.kill()
        crowd.finish()
    with server:
        crowd.check(server)
        assert not (log / "unborn").exists()
        assert server.stop() == 0
    assert caught > 0, "no kill fell into a roll"


def wait_for_roll(log: Path, skip: int) -> None:
    """Wait until a segment is being made, after some that are let go by."""
    unborn = str(log / "unborn")
    give_up_at = time.monotonic() + 30
    for _ in range(skip):
        while not os.path.exists(unborn) and time.monotonic() < give_up_at:
            pass
        while os.path.exists(unborn):
            pass
    while not os.path.exists(unborn) and time.monotonic() < give_up_at:
        pass


def test_a_server_that_is_killed_during_replay_replays_everything_the_next_time(tmp_path: Path) -> None:
    random = seeded("replay")
    write_long_log(tmp_path / "data", messages=MESSAGES)
    server = Server(tmp_path / "data")
    rounds = caught = 0
    while rounds < ROUNDS // 3 or (caught == 0 and rounds < 30):
        rounds += 1
        server.start(ready=False)
        client = Client(server)
        time.sleep(random.uniform(0, 0.3))
        answer = client.ask("GET", "/readyz/local")
        if answer.status == 503:
            assert 0 <= json.loads(answer.body)["progress"] < 1
            caught += 1
        server.kill()
        client.close()
    assert caught > 0, "no kill fell into a replay"
    with server:
        client = Client(server)
        for path, tail in expected_tail(messages=MESSAGES).items():
            assert client.ask("HEAD", path).headers["stream-next-offset"] == f"{tail:020}"
        assert client.ask("POST", "/v1/stream/long-0", b"x", {"content-type": "text/plain"}).status == 204
        client.close()
        assert server.complaints() == []
        assert server.stop() == 0


@pytest.mark.parametrize(
    "file", ["", "lock", "ursula.json.new", "ursula.json", "log", "log/g0", "log/g0/unborn"]
)
def test_a_first_start_that_was_killed_half_way_can_be_repeated(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "data"
    server = Server(folder)
    starting = threading.Thread(target=start_in_vain, args=(server,))
    starting.start()
    while not (folder / file).exists() and starting.is_alive():
        pass  # what is there only for a moment may be missed: then it is killed when it listens
    server.process.kill()
    starting.join()
    server.kill()
    with server:
        client = Client(server)
        assert client.ask("PUT", "/v1/stream/a", b"kept", BINARY).status == 201
        client.close()
        assert server.complaints() == []
        assert server.stop() == 0


def start_in_vain(server: Server) -> None:
    """Start a server that someone else kills meanwhile."""
    with contextlib.suppress(ServerExited):
        server.start(ready=False)
