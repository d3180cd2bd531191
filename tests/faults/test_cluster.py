"""Three real nodes whose processes are killed, frozen, wiped and restarted while clients use all of them.

Each client notes when it asked what and when it was answered, and afterwards every stream must have a history
that one server could have had: nothing acknowledged is lost or doubled, nothing answered as not written is
there, and no answer is older than an earlier one.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest
from tests.cluster.three_nodes import ClusterNode, three_nodes
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
from tests.faults.linearizable import check
from tests.faults.rounds import IS_LONG, ROUNDS, SEED

EVENTS = 4 * ROUNDS if IS_LONG else 2 * ROUNDS
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


class Faults:
    """What can happen to a node."""

    def __init__(self, nodes: list[ClusterNode], seed: int) -> None:
        self._nodes = nodes
        self._random = random.Random(seed)
        self._kinds = [
            self.kill_node,
            self.kill_etcd,
            self.freeze_node,
            self.freeze_etcd,
            self.freeze_server,
            self.restart,
            self.wipe,
            self.kill_two,
            self.move_lead,
        ]

    def one(self) -> str:
        """Let one of them happen, and be over; returns its name."""
        kind = self._random.choice(self._kinds)
        node = self._random.choice(self._nodes)
        kind(node)
        for one in self._nodes:
            one.wait_until_in_cluster()
        return f"{kind.__name__} {node.number}"

    def kill_node(self, node: ClusterNode) -> None:
        """The server dies, and its etcd with it."""
        node.kill()
        time.sleep(self._random.uniform(0, 3))
        node.start(ready=False)

    def kill_two(self, node: ClusterNode) -> None:
        """No majority is left for a while."""
        others = [other for other in self._nodes if other is not node]
        for other in others:
            other.kill()
        time.sleep(self._random.uniform(0, 2))
        for other in others:
            other.start(ready=False)

    def kill_etcd(self, node: ClusterNode) -> None:
        """Only its etcd dies."""
        os.kill(node.etcd, signal.SIGKILL)
        time.sleep(self._random.uniform(0, 2))

    def freeze_node(self, node: ClusterNode) -> None:
        """Everything stands still, with all connections open."""
        self._freeze([node.process.pid, node.etcd])

    def freeze_etcd(self, node: ClusterNode) -> None:
        """Its etcd stands still."""
        self._freeze([node.etcd])

    def freeze_server(self, node: ClusterNode) -> None:
        """The server stands still, and its etcd goes on."""
        self._freeze([node.process.pid])

    def restart(self, node: ClusterNode) -> None:
        """A planned restart."""
        assert node.stop() == 0
        node.start(ready=False)

    def wipe(self, node: ClusterNode) -> None:
        """Its disk is lost."""
        node.kill()
        node.wipe()
        time.sleep(self._random.uniform(0, 1))
        node.start(ready=False)

    def move_lead(self, node: ClusterNode) -> None:
        """Another node leads."""
        httpx.post(f"{node.url}/cluster/transfer-leader", timeout=20)

    def _freeze(self, processes: list[int]) -> None:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        time.sleep(self._random.choice((0.5, 3, 8)))
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.timeout(1800)
def test_three_nodes_have_a_history_that_one_server_could_have(tmp_path: Path) -> None:
    print(f"repeat with URSULA_FAULT_SEED={SEED}")
    settings = {"cold__flush_size": "16KiB", "cold__flush_interval": "1s"}
    with three_nodes(tmp_path, **settings) as nodes:
        assert httpx.put(f"{nodes[0].url}/faults").status_code == 201
        clients, faults = Clients(nodes, SEED), Faults(nodes, SEED)
        clients.create_all(nodes[1].url)
        with clients.running():
            time.sleep(1)
            for number in range(EVENTS):
                print(f"{number + 1}: {faults.one()}", flush=True)
                time.sleep(1)
        contents = [clients.read_all(node.url) for node in nodes]
        assert contents[0] == contents[1] == contents[2]
        for node in nodes:
            status = httpx.get(f"{node.url}/cluster/status", timeout=20).json()
            assert status["disagreement"] is None
    acknowledged = 0
    for history in clients.histories.values():
        acknowledged += sum(isinstance(operation.result, Appended) for operation in history)
        check(history)
    assert acknowledged > 20 * EVENTS
    print(f"{acknowledged} acknowledged appends")
