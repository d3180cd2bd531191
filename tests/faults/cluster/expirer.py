"""A writer of streams that end by themselves: not before their time, whatever the clock of a node says."""

import time
from random import Random

from tests.faults.client import Client
from tests.faults.cluster.roamer import ask
from tests.faults.writers import TEXT, Writer

TTL_SECONDS = 12
EARLY_SECONDS_MAX = 3.0
"""A node whose clock is 2 s ahead may still write."""

LATE_SECONDS_MAX = 8.0
"""The time of the log passes more slowly while it is ahead of the clocks."""


class Expirer(Writer):
    """Makes one stream after the other, and looks at each until it has ended."""

    def __init__(self, name: str, random: Random, bucket: str) -> None:
        super().__init__(name, random)
        self._bucket = bucket
        self._began_at = 0.0
        self._made_at = 0.0
        """Between these two times the last stream was made, if it was made; 0 if it has ended."""

    def write(self, client: Client) -> None:
        """Make a stream, or look whether it is there."""
        path = f"/{self._bucket}/{self.name}-{self.number}"
        if not self._made_at:
            self.number += 1
            path = f"/{self._bucket}/{self.name}-{self.number}"
            self._began_at = time.monotonic()
            answer = ask(client, "PUT", path, headers=TEXT | {"stream-ttl": str(TTL_SECONDS)})
            assert answer.status == 201, answer
            self._made_at = time.monotonic()
            return
        asked_at = time.monotonic()
        answer = ask(client, "HEAD", path)
        age, age_min = time.monotonic() - self._began_at, asked_at - self._made_at
        if answer.status == 404:
            assert age > TTL_SECONDS - EARLY_SECONDS_MAX, (path, "ended early, after", age)
            self.acknowledged.add(self.number)
            self._made_at = 0.0
        else:
            assert answer.status == 200, answer
            assert age_min < TTL_SECONDS + LATE_SECONDS_MAX, (path, "has not ended after", age_min)
