"""kill -9 while segments are merged and objects are removed: what was acknowledged is there."""

import asyncio
import time
from pathlib import Path
from random import Random

from tests.engine.tidying import check_manifests
from tests.faults.client import Answer, Client
from tests.faults.rounds import ROUNDS, seeded
from tests.faults.writers import BINARY, Appender, Crowd, Stopped
from tests.server import Server

from ursula.cold.objects.fs import FsStore

SETTINGS = {
    "limits.log_segment_bytes": "64KiB",
    "cold.flush_size": "4KiB",
    "cold.flush_interval": "50ms",
    "cold.keep_replaced": "1s",
}
BUCKET = "trimmed"
TOO_SLOW = "was not recorded"
"""A flush that took longer than objects are kept here: it is repeated."""


class Trimmer(Appender):
    """Appends to a stream of its own as a producer, and lets it begin later and later."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random, f"/{BUCKET}/{name}", True, False)
        self.data = b""
        self._body_sent = b""
        self._earliest = {0}  # more than one, while a trim was not answered

    def write(self, client: Client) -> None:
        """An append, and sometimes a snapshot at what was the tail before it."""
        before = len(self.data)
        super().write(client)
        if self.random.random() < 0.1 and before:
            self._earliest.add(before)
            answer = client.ask("PUT", f"{self.path}/snapshot/{before}", b"at %d" % before, BINARY)
            if answer.status == 503:
                raise Stopped
            assert answer.status == 204, (self.name, answer)
            self._earliest = {before}

    def send(self, client: Client, body: bytes, headers: dict[str, str]) -> Answer:
        """Remember what may be there without an answer."""
        self._body_sent = body
        return super().send(client, body, headers)

    def take(self, answer: Answer) -> bool:
        """Remember what is there."""
        acknowledged = super().take(answer)
        self.data += self._body_sent
        self._body_sent = b""
        return acknowledged

    def check(self, client: Client) -> None:
        """All bytes from the beginning on are there, and the snapshot that it begins with."""
        head = client.ask("HEAD", self.path)
        assert head.status == 200, head
        earliest = int(head.headers.get("stream-earliest-offset", 0))
        assert earliest in self._earliest, (self.name, earliest, self._earliest)
        self._earliest = {earliest}
        content = client.read(self.path)
        data = self.data[earliest:]
        assert content in (data, data + self._body_sent), (self.name, earliest, len(content), len(data))
        if earliest:
            answer = client.ask("GET", f"{self.path}/snapshot/{earliest}")
            assert (answer.status, answer.body) == (200, b"at %d" % earliest), (self.name, answer)


def test_nothing_acknowledged_is_lost_when_the_server_is_killed_while_it_tidies_its_store(
    tmp_path: Path,
) -> None:
    random = seeded("tidying")
    crowd = Crowd(random)
    trimmers = [Trimmer(f"trimmed-{number}", Random(random.getrandbits(64))) for number in range(2)]
    server = Server(tmp_path / "data", settings=SETTINGS)
    removals = 0
    for _ in range(ROUNDS):
        server.start()
        crowd.make_streams(server)
        client = Client(server)
        assert client.ask("PUT", f"/{BUCKET}").status in (201, 409)
        for trimmer in trimmers:
            assert client.ask("PUT", trimmer.path, headers=BINARY).status in (200, 201)
            trimmer.check(client)
        client.close()
        crowd.check(server, sample=30)
        crowd.start(server)
        for trimmer in trimmers:
            trimmer.start(server)
        time.sleep(random.uniform(0.5, 3))
        server.kill()
        crowd.finish()
        for trimmer in trimmers:
            trimmer.finish()
        removals += sum("removed" in entry["message"] for entry in server.log)
        assert [entry for entry in server.complaints() if TOO_SLOW not in entry["message"]] == []
        asyncio.run(check_store(tmp_path / "data" / "cold"))
    with server:
        client = Client(server)
        for trimmer in trimmers:
            trimmer.check(client)
        client.close()
        crowd.check(server)
        assert server.stop() == 0
    assert removals > 0 or ROUNDS < 3, "no kill fell into a time after a collection"


async def check_store(folder: Path) -> None:
    """Every manifest that is there can be started from."""
    store = FsStore(folder)
    try:
        await check_manifests(store)
    finally:
        await store.close()
