"""A writer of attributes: an acknowledged replacement is there, any other whole or not at all."""

import json
from random import Random
from typing import Any

from tests.faults.client import Client
from tests.faults.feed import Feed
from tests.faults.writers import JSON, Stopped, Writer


class Attributer(Writer):
    """Replaces the attributes of one stream; nobody else does."""

    def __init__(self, name: str, random: Random, path: str) -> None:
        super().__init__(name, random)
        self.path = path
        self.replacements: list[Any] = []
        """All that were carried out, in order."""
        self._shown: Any = {}
        self._unanswered: Any = None

    def write(self, client: Client) -> None:
        """The next replacement."""
        self.number += 1
        wanted = {} if self._shown and self.random.random() < 0.1 else self._attributes()
        self._unanswered = wanted
        answer = client.ask("PUT", f"{self.path}/attrs", json.dumps(wanted).encode(), JSON)
        if answer.status == 503:
            raise Stopped
        assert answer.status == 204, (self.name, answer)
        self.acknowledged.add(self.number)
        self._carried_out()

    def check(self, client: Client, feed: Feed) -> None:
        """Compare what was promised with what is there and what is told of it."""
        found = json.loads(client.ask("GET", f"{self.path}/attrs").body)
        if self._unanswered is not None and found == self._unanswered:
            self._carried_out()
        assert found == self._shown, (self.name, found, self._shown)
        self._unanswered = None
        told = [row["event"]["attributes"] for row in feed.events(self.path, "attributes")]
        assert told == self.replacements, (self.name, len(told), len(self.replacements))

    def _carried_out(self) -> None:
        self._shown, self._unanswered = self._unanswered, None
        self.replacements.append(self._shown)

    def _attributes(self) -> dict[str, Any]:
        padding = "ä" * self.random.choice((0, 10, 1000, 5000))
        return {"title": f"{self.name} {self.number}", "metadata": {"n": self.number, "x": padding}}
