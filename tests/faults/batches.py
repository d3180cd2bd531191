"""Writers of batches: in whole and once, or not at all."""

import json
import struct

from tests.faults.client import Answer, Client
from tests.faults.writers import Appender, Stopped

FRAMES_MAX = 12


class Batcher(Appender):
    """Appends batches of numbered messages; the number is that of the batch."""

    def send(self, client: Client, body: bytes, headers: dict[str, str]) -> Answer:
        """The request, which may ask for a short answer."""
        if self.random.random() < 0.3:
            headers = headers | {"prefer": "return=minimal"}
        return client.ask("POST", f"{self.path}/append-batch", body, headers)

    def take(self, answer: Answer) -> bool:
        """Whether the batch was acknowledged, and then all of it."""
        if answer.status == 503:
            raise Stopped
        assert answer.status in (200, 204), (self.name, answer)
        if answer.status == 200:
            items = json.loads(answer.body)
            assert {item["status"] for item in items} == {204}, (self.name, items)
            offsets = [item["stream_next_offset"] for item in items]
            assert offsets == sorted(set(offsets)), (self.name, offsets)
            assert offsets[-1] == answer.headers["stream-next-offset"]
            if self.is_json:
                self.records[self.number] = items[0]["stream_record_start"]
        self.acknowledged.add(self.number)
        return True

    def _body(self) -> bytes:
        messages = self.messages(self.random.randrange(1, FRAMES_MAX))
        frames = []
        while messages:
            count = self.random.randrange(1, 4) if self.is_json else 1
            together, messages = messages[:count], messages[count:]
            frames.append(b"[%s]" % b",".join(together) if self.is_json else together[0])
        return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
