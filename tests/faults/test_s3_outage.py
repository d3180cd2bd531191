"""S3 that is gone, slow, broken or closed to us: appends go on while there is room, and nothing is lost."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.faults.gate import Gate
from tests.faults.rounds import IS_LONG
from tests.http.wire import BINARY, make
from tests.scrape import scrape
from tests.server import Server

PIECE = 20_000
FAILURES = 5 if IS_LONG else 2
"""How often it is tried while S3 is gone, each time for 10 s. Only the first failure is told."""

PATH = "/v1/stream/outage/s"


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """An S3 server that may be stopped."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        running.bucket("outage")
        yield running


def server_on(endpoint: str, folder: Path, secret: str = SECRET_ACCESS_KEY) -> Server:
    settings = {
        "cold.backend": "s3",
        "cold.root": folder.name,
        "cold.s3_bucket": "outage",
        "cold.s3_endpoint": endpoint,
        "cold.s3_access_key_id": ACCESS_KEY_ID,
        "cold.s3_secret_access_key": secret,
        "cold.flush_size": "16KiB",
        "cold.flush_interval": "50ms",
        "cold.max_hot_bytes": "1MiB",
        "cold.cache_bytes": "0",
    }
    return Server(folder / "data", settings=settings)


class Writer:
    """Appends pieces, and knows all that were acknowledged."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.written = b""
        self._number = 0

    def begin(self) -> None:
        with self.client() as api:
            make(api, PATH, BINARY)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self._server.url, timeout=60)

    def append(self) -> httpx.Response:
        piece = self._number.to_bytes(4, "big") * (PIECE // 4)
        self._number += 1
        with self.client() as api:
            answer = api.post(PATH, headers=BINARY, content=piece)
        if answer.is_success:
            self.written += piece
        return answer

    def fill(self) -> None:
        """Append until there is no room: only then is it refused."""
        for _ in range(200):
            answer = self.append()
            if not answer.is_success:
                break
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "write_backpressure"
        assert int(answer.headers["retry-after"]) > 0
        assert len(self.written) > 500_000

    def recover(self) -> None:
        """Wait until appends are taken again, and everything is there."""
        wait_until(lambda: self.append().is_success)
        self.check()

    def check(self) -> None:
        with self.client() as api:
            wait_until(lambda: api.get(PATH).status_code == 200)
            found = b""
            while len(found) < len(self.written):
                answer = api.get(PATH, params={"offset": str(len(found))})
                assert answer.status_code == 200, answer.text
                found += answer.content
        assert found == self.written


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


def errors(server: Server) -> list[str]:
    return [str(entry) for entry in server.log if entry["level"] == "error"]


@pytest.mark.timeout(300)
def test_s3_that_is_gone_for_a_while_costs_nothing_but_room(seaweed: Seaweed, tmp_path: Path) -> None:
    with server_on(seaweed.endpoint, tmp_path) as server:
        writer = Writer(server)
        writer.begin()
        for _ in range(10):
            assert writer.append().is_success
        seaweed.stop()
        try:
            writer.fill()
            wait_until(lambda: bool(errors(server)))
            wait_until(lambda: failed_flushes(writer) >= FAILURES, seconds=120)
            assert len(errors(server)) == 1, errors(server)
            server.kill()
            server.start(ready=False)
            with writer.client() as api:
                assert api.get("/healthz").status_code == 200
                assert api.get("/readyz/local").status_code == 503
                assert api.get(PATH).status_code == 503
            wait_until(lambda: any("waiting for the store" in text for text in errors(server)))
        finally:
            seaweed.start()
        server.wait_until_ready()
        writer.recover()
        server.kill()
        server.start()
        writer.recover()
        assert server.stop() == 0


@pytest.mark.timeout(300)
def test_s3_that_answers_500_or_late_costs_nothing_but_room(seaweed: Seaweed, tmp_path: Path) -> None:
    with Gate(seaweed.endpoint) as gate, server_on(gate.endpoint, tmp_path) as server:
        writer = Writer(server)
        writer.begin()
        gate.set(is_broken=True)
        writer.fill()
        wait_until(lambda: bool(errors(server)))
        assert len(errors(server)) == 1, errors(server)
        gate.set(delay_seconds=0.2)
        writer.recover()
        for _ in range(5):
            writer.append()
        gate.set()
        writer.recover()
        assert server.stop() == 0


@pytest.mark.timeout(300)
def test_wrong_credentials_are_told_and_mended_by_a_restart(seaweed: Seaweed, tmp_path: Path) -> None:
    with server_on(seaweed.endpoint, tmp_path) as server:
        writer = Writer(server)
        writer.begin()
        for _ in range(5):
            assert writer.append().is_success
    with Gate(seaweed.endpoint) as gate:
        wrong = server_on(gate.endpoint, tmp_path, "wrong").start(ready=False)
        try:
            wait_until(lambda: any("waiting for the store" in text for text in errors(wrong)))
            with httpx.Client(base_url=wrong.url, timeout=60) as api:
                assert api.get("/healthz").status_code == 200
                assert api.get(PATH).status_code == 503
            told = gate.passed_count
            wait_until(lambda: gate.passed_count >= told + 2)  # it is tried again, and not told again
            assert len(errors(wrong)) == 1, errors(wrong)
        finally:
            wrong.kill()
    with server:
        writer.recover()


@pytest.mark.timeout(300)
def test_credentials_that_stop_being_valid_cost_nothing_but_room(seaweed: Seaweed, tmp_path: Path) -> None:
    with server_on(seaweed.endpoint, tmp_path) as server:
        writer = Writer(server)
        writer.begin()
        for _ in range(5):
            assert writer.append().is_success
        seaweed.change_secret("another one")
        try:
            wait_until(lambda: writer.append().is_success and bool(errors(server)))
            writer.fill()
            wait_until(lambda: failed_flushes(writer) >= 3)  # it is tried again, and not told again
            (problem,) = errors(server)
            assert "responds with 403" in problem
            assert "check cold.s3_access_key_id, cold.s3_secret_access_key" in problem
            assert len(server.complaints()) == 1, server.complaints()
        finally:
            seaweed.change_secret(SECRET_ACCESS_KEY)
        writer.recover()
        assert len(server.complaints()) == 1, server.complaints()
        server.kill()
        server.start()
        writer.recover()
        assert server.complaints() == []
        assert server.stop() == 0


def failed_flushes(writer: Writer) -> int:
    """How many flushes came to nothing."""
    with writer.client() as api:
        return int(scrape(api)["ursula_cold_flush_failures_total"])
