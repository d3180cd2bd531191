"""Clients of a cluster that note when they asked what of which node, and when they were answered."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import httpx
from tests.cluster.three_nodes import ClusterNode
from tests.faults.history import (
    Append,
    Appended,
    Call,
    Content,
    Create,
    Created,
    Head,
    Operation,
    OutcomeUnknown,
    Read,
    Result,
    Tail,
    Unavailable,
)

STREAMS = 4
CLIENTS = 6
MESSAGE_BYTES = 16
TEXT = {"content-type": "text/plain"}
REST_SECONDS = 0.02


class Clients:
    """Clients that append, read and ask for the tail, each time on any node."""

    def __init__(self, nodes: list[ClusterNode], seed: int) -> None:
        self._urls = [node.url for node in nodes]  # a node that is down has none
        self._random = random.Random(seed)
        self._numbers = count()
        self.histories: dict[str, list[Operation]] = {f"/faults/s{number}": [] for number in range(STREAMS)}
        self._is_stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let all clients work until the block ends."""
        threads = [threading.Thread(target=self._work, args=(f"c{number}",)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_stopping.set()
            for thread in threads:
                thread.join()

    def create_all(self, url: str) -> None:
        """Create all streams."""
        for path, history in self.histories.items():
            invoked = time.monotonic()
            assert httpx.put(url + path, headers=TEXT).status_code == 201
            history.append(Operation("first", invoked, time.monotonic(), Create(), Created(new=True)))

    def read_all(self, url: str) -> dict[str, tuple[bytes, ...]]:
        """The whole content of each stream by one node, which is part of the history too."""
        with httpx.Client(timeout=30) as client:
            for path in self.histories:
                self._note("last", path, Read(), lambda path=path: self._read(client, url, path))  # type: ignore[misc]
        found = {path: history[-1].result for path, history in self.histories.items()}
        return {path: one.messages for path, one in found.items() if isinstance(one, Content)}

    def _work(self, name: str) -> None:
        with httpx.Client(timeout=15) as client:
            while not self._is_stopping.is_set():
                path = self._random.choice(tuple(self.histories))
                url = self._random.choice(self._urls)
                kind = self._random.random()
                if kind < 0.6:
                    message = b"%0*d" % (MESSAGE_BYTES, next(self._numbers))
                    call: Call = Append(message)
                    self._note(name, path, call, lambda: self._append(client, url, path, message))  # noqa: B023
                elif kind < 0.9:
                    self._note(name, path, Head(), lambda: self._head(client, url, path))  # noqa: B023
                else:
                    self._note(name, path, Read(), lambda: self._read(client, url, path))  # noqa: B023
                time.sleep(REST_SECONDS)

    def _note(self, name: str, path: str, call: Call, ask: Callable[[], Result]) -> None:
        invoked = time.monotonic()
        try:
            result = ask()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            result = Unavailable()  # nothing was sent
        except httpx.TransportError:
            result = OutcomeUnknown()
        self.histories[path].append(Operation(name, invoked, time.monotonic(), call, result))

    def _append(self, client: httpx.Client, url: str, path: str, message: bytes) -> Result:
        answer = client.post(url + path, content=message, headers=TEXT)
        if answer.status_code == 204:
            return Appended(int(answer.headers["stream-next-offset"]))
        return self._failure(answer)

    def _head(self, client: httpx.Client, url: str, path: str) -> Result:
        answer = client.head(url + path)
        if answer.status_code == 200:
            return Tail(int(answer.headers["stream-next-offset"]))
        return OutcomeUnknown()

    def _read(self, client: httpx.Client, url: str, path: str) -> Result:
        text, offset = b"", "-1"
        while True:
            answer = client.get(url + path, params={"offset": offset})
            if answer.status_code != 200:
                self._failure(answer)
                return OutcomeUnknown()
            text += answer.content
            offset = answer.headers["stream-next-offset"]
            if "stream-up-to-date" in answer.headers:
                break
        return Content(tuple(text[at : at + MESSAGE_BYTES] for at in range(0, len(text), MESSAGE_BYTES)))

    def _failure(self, answer: httpx.Response) -> Result:
        assert answer.status_code == 503, answer.text
        code = answer.json()["error"]["code"]
        if code in ("unavailable", "write_backpressure"):
            return Unavailable()
        assert code == "outcome_unknown", answer.text
        return OutcomeUnknown()
