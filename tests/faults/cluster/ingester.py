"""A writer of bulk writes, each of which is asked for on any node until it is done."""

import json
from random import Random

from tests.faults.client import Client
from tests.faults.cluster.roamer import ask
from tests.faults.writers import Writer
from tests.http.staged import arrow

ROWS = 30
STREAMS = 2


class Ingester(Writer):
    """One version after the other; nobody else writes to its streams."""

    def __init__(self, name: str, random: Random, bucket: str) -> None:
        super().__init__(name, random)
        self._bucket = bucket
        self._object = ""
        """That of the bulk write that is not done."""

    def write(self, client: Client) -> None:
        """The next bulk write, or the last one again until it is done."""
        if not self._object:
            rows = [(f"{self.name}-{row % STREAMS}", self._row(self.number + 1, row)) for row in range(ROWS)]
            answer = ask(client, "POST", f"/cluster/staging?bucket={self._bucket}", arrow(rows))
            assert answer.status == 201, answer
            self._object = json.loads(answer.body)["object"]
            self.number += 1
        wish = {
            "bucket": self._bucket,
            "app": self.name,
            "version": self.number,
            "objects": [self._object],
            "create_streams": True,
            "content_type": "text/plain",
        }
        answer = ask(client, "POST", "/cluster/ingest", json.dumps(wish).encode())
        if answer.status != 202:
            assert answer.status == 200, answer
            assert json.loads(answer.body)["appended"] == ROWS, answer
            self.acknowledged.add(self.number)
            self._object = ""

    def check(self, client: Client) -> None:
        """All rows are there once and in order; of one that is not done, the first rows or none."""
        for stream in range(STREAMS):
            expected = [
                self._row(number, row)
                for number in range(1, self.number + 1)
                for row in range(stream, ROWS, STREAMS)
            ]
            done = len(self.acknowledged) * ROWS // STREAMS
            path = f"/{self._bucket}/{self.name}-{stream}"
            text = client.read(path) if expected[:done] or client.ask("HEAD", path).status == 200 else b""
            assert text.startswith(b"".join(expected[:done])), (path, "lost or doubled", text)
            assert b"".join(expected).startswith(text), (path, "doubled", text)

    def _row(self, number: int, row: int) -> bytes:
        return f"<{self.name} {number} {row}>".encode()
