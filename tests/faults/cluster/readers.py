"""Live readers of a cluster, each at one node after another: they are shown a prefix of one history."""

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from tests.faults.consumer import Gone, followed, polled
from tests.http.raw import Place

SILENT_SECONDS_MAX = 4.0
STAY_SECONDS_MAX = 6.0
CATCH_UP_SECONDS_MAX = 60.0


class Reader:
    """A reader of a stream of text or of a feed, which goes on at another node where it was left."""

    def __init__(self, path: str, kind: str, places: Sequence[Place], random: Random) -> None:
        """The kinds are those of `consumer.KINDS`."""
        self.path = path
        self.kind = kind
        self.text = bytearray()
        self._position = "-1"
        self._places = places
        self._random = random

    def work(self, over: threading.Event) -> None:
        """Read until the event is set."""
        while not over.is_set():
            leave_at = time.monotonic() + self._random.uniform(0, STAY_SECONDS_MAX)
            self._stay(lambda: over.is_set() or time.monotonic() > leave_at)  # noqa: B023

    def check(self, read: Callable[[], bytes]) -> None:
        """Read on to the end: then it has everything that `read` returns, once and in order.

        A feed may grow meanwhile, when streams end by themselves.
        """
        size = len(_on_one_line(read()))
        give_up_at = time.monotonic() + CATCH_UP_SECONDS_MAX
        while len(self.text) < size and time.monotonic() < give_up_at:
            self._stay(lambda: len(self.text) >= size)
        expected = _on_one_line(read())
        if len(self.text) >= size:
            expected = expected[: len(self.text)]
        if self.text != expected:
            pairs = enumerate(zip(self.text, expected, strict=False))
            at = next((at for at, (shown, there) in pairs if shown != there), len(expected))
            shown, there = bytes(self.text[at : at + 200]), expected[at : at + 200]
            raise AssertionError(
                (self.kind, self.path, f"byte {at}: it was shown", shown, "instead of", there)
            )

    def _stay(self, is_over: Callable[[], bool]) -> None:
        """Read at one node."""
        place = self._random.choice(self._places)
        connection = http.client.HTTPConnection(place.host, place.port, timeout=SILENT_SECONDS_MAX)
        if self.kind == "sse":
            stretches = followed(connection, self.path, self._position)
        else:
            stretches = polled(connection, self.path, self.kind == "long-poll", self._position)
        try:
            for text, self._position in stretches:
                self.text += _on_one_line(text)
                if is_over():
                    return
        except (OSError, http.client.HTTPException, Gone):
            return
        finally:
            connection.close()


def _on_one_line(text: bytes) -> bytes:
    """Without line breaks, which events add to a stream, and which a feed has after every row."""
    return text.replace(b"\n", b"")
