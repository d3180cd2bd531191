"""Lets a writer of the tests with one server use a cluster: one node after another."""

import threading
from collections.abc import Sequence
from random import Random

from tests.faults.client import Answer, Client, NoAnswer
from tests.faults.writers import Stopped, Writer
from tests.http.raw import Place

STEPS_MAX = 20


def ask(
    client: Client, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """A request, whose answer may be that it is to be sent again: that ends the stay at the node."""
    answer = client.ask(method, path, body, headers)
    if answer.status == 503:
        raise Stopped
    return answer


class Roamer:
    """Works at a node until that does not answer, or for a few steps."""

    def __init__(self, writer: Writer, places: Sequence[Place], random: Random, rest: float) -> None:
        """`rest` is how many seconds the writer rests after each step."""
        self._writer = writer
        self._rest = rest
        self._places = places
        self._random = random

    def work(self, over: threading.Event) -> None:
        """Write until the event is set."""
        while not over.is_set():
            client = Client(self._random.choice(self._places))
            try:
                for _ in range(self._random.randrange(STEPS_MAX)):
                    self._writer.write(client)
                    if over.wait(self._rest):
                        break
            except (NoAnswer, Stopped):
                over.wait(self._rest)
            finally:
                client.close()
