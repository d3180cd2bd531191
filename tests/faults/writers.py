"""Writers that remember what they were promised, and a check that the server keeps it.

A writer sends one request at a time, each with a number, and knows for each whether it was acknowledged.
After the server died it goes on: a producer repeats what was not answered, the others leave it open.
"""

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from tests.faults.client import Answer, Client, NoAnswer
from tests.server import Server

BINARY = {"content-type": "application/octet-stream"}
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}

_MESSAGE = re.compile(rb"<([a-z0-9-]+) (\d+) (\d+)/(\d+) x*>")


class Message(NamedTuple):
    """Who sent a message, in which request, and which part of that it is."""

    writer: str
    number: int
    part: int
    parts: int


class Stopped(Exception):
    """The server is gone, or the round is over."""


class Writer:
    """One writer over all lives of the server: the numbers it sent, and those that were acknowledged."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.random = random
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.number = 0
        self.problem: BaseException | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, server: Server) -> None:
        """Write until the server is gone or `finish`."""
        self._over.clear()
        self._thread = threading.Thread(target=self._run, args=(Client(server),), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End at the next request, and pass on what went wrong."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.problem is not None:
            raise self.problem

    def write(self, client: Client) -> None:
        """One step."""
        raise NotImplementedError

    def _run(self, client: Client) -> None:
        try:
            while not self._over.is_set():
                self.write(client)
        except (NoAnswer, Stopped):
            pass
        except BaseException as problem:
            self.problem = problem
        finally:
            client.close()


class Appender(Writer):
    """Appends numbered messages to one stream, as a producer or not."""

    def __init__(self, name: str, random: Random, path: str, produces: bool, is_json: bool) -> None:
        super().__init__(name, random)
        self.path = path
        self.produces = produces
        self.is_json = is_json
        self.records: dict[int, int] = {}
        """For the numbers whose answer told it: the ordinal of the first message."""
        self._unanswered: bytes | None = None

    def write(self, client: Client) -> None:
        """Append the next message; a producer first repeats the one that was not answered."""
        if not self.produces or self._unanswered is None:
            self.number += 1
            self._unanswered = self._body()
        headers = dict(JSON if self.is_json else BINARY)
        if self.produces:
            seq = str(self.number - 1)
            headers |= {"producer-id": self.name, "producer-epoch": "0", "producer-seq": seq}
        self.sent.add(self.number)
        answer = self.send(client, self._unanswered, headers)
        if self.take(answer):
            self._unanswered = None

    def send(self, client: Client, body: bytes, headers: dict[str, str]) -> Answer:
        """The request."""
        return client.ask("POST", self.path, body, headers)

    def take(self, answer: Answer) -> bool:
        """Whether the append was acknowledged; anything but that or a server that stops is wrong."""
        if answer.status == 503:
            raise Stopped
        assert answer.status in ((200, 204) if self.produces else (204,)), (self.name, answer)
        self.acknowledged.add(self.number)
        if "stream-record-start" in answer.headers:  # a repeated one is told it unless that was trimmed
            self.records[self.number] = int(answer.headers["stream-record-start"])
        return True

    def _body(self) -> bytes:
        if not self.is_json:
            return self.messages(1)[0]
        return b"[%s]" % b",".join(self.messages(self.random.randrange(1, 4)))

    def messages(self, parts: int) -> list[bytes]:
        """The messages of the next request."""
        padding = self.random.choice((0, 10, 100, 300, 3000))
        if not self.is_json:
            head = b"<%s %d" % (self.name.encode(), self.number)
            return [b"%s %d/%d %s>" % (head, part, parts, b"x" * padding) for part in range(parts)]
        return [
            json.dumps(
                {"w": self.name, "n": self.number, "part": part, "parts": parts, "x": "x" * padding}
            ).encode()
            for part in range(parts)
        ]


class Lifecycle(Writer):
    """Creates, appends to, closes and deletes streams of its own, one after the other."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
        self.streams: dict[int, Life] = {}

    def write(self, client: Client) -> None:
        """The whole life of one stream."""
        self.number += 1
        life = self.streams[self.number] = Life(f"/v1/stream/{self.name}-{self.number}", self.random)
        life.live(client)


class Life:
    """One stream: for each step whether it was tried and whether it was acknowledged."""

    def __init__(self, path: str, random: Random) -> None:
        self.path = path
        self.lifetime = random.choice(({}, {}, {"stream-ttl": "3600"}, {"stream-ttl": "1"}, {"fixed": "1"}))
        if "fixed" in self.lifetime:
            self.lifetime = {"stream-expires-at": "2099-01-02T03:04:05Z"}
        self.steps = ["create", "append", *random.choice(([], ["close"], ["delete"], ["close", "delete"]))]
        self.tried: set[str] = set()
        self.done: set[str] = set()
        self.touched = 0.0

    def live(self, client: Client) -> None:
        """Go through the steps."""
        requests = {
            "create": ("PUT", b"first", self.lifetime),
            "append": ("POST", b"second", {}),
            "close": ("POST", b"last", {"stream-closed": "true"}),
            "delete": ("DELETE", None, {}),
        }
        for step in self.steps:
            method, body, headers = requests[step]
            self.tried.add(step)
            self.touched = time.time()
            answer = client.ask(method, self.path, body, BINARY | headers if body else {})
            self.touched = time.time()
            if answer.status == 503:
                raise Stopped
            if answer.status == 404 and self.is_short:
                return
            assert answer.status == (201 if step == "create" else 204), (step, answer)
            self.done.add(step)

    @property
    def is_short(self) -> bool:
        """Whether it ends by itself while the test runs."""
        return self.lifetime.get("stream-ttl") == "1"

    def check(self, client: Client) -> None:
        """Compare what was promised with what is there now."""
        asked_at = time.time()
        answer = client.ask("HEAD", self.path)
        assert answer.status in (200, 404), answer
        if "delete" in self.done or (self.is_short and self.touched and asked_at > self.touched + 3):
            assert answer.status == 404, (self.path, self.done, "came back")
        if answer.status == 404:
            assert "create" not in self.done or "delete" in self.tried or self.is_short, (self.path, "lost")
            return
        assert "create" in self.tried
        for header in ("stream-ttl", "stream-expires-at"):
            assert answer.headers.get(header) == self.lifetime.get(header), (self.path, answer)
        if "close" in self.done:
            assert answer.headers.get("stream-closed") == "true", (self.path, "is open again")
            refused = client.ask("POST", self.path, b"more", BINARY)
            assert refused.status in ((404, 409) if self.is_short else (409,)), refused
        if answer.headers.get("stream-closed") == "true":
            assert "close" in self.tried
        if not self.is_short:
            wanted = b"first" + b"second" * ("append" in self.done) + b"last" * ("close" in self.done)
            possible = b"first" + b"second" * ("append" in self.tried) + b"last" * ("close" in self.tried)
            assert client.read(self.path) in (wanted, possible), (self.path, wanted, possible)


def check_stream(client: Client, path: str, appenders: Sequence[Appender]) -> None:
    """Every acknowledged append is there once and in order, the others once or not at all."""
    if appenders[0].is_json:
        texts = [message for page in client.pages(path) for message in json.loads(page)]
        check_messages(path, [json_message(text) for text in texts], appenders)
    else:
        check_messages(path, binary_messages(path, client.read(path)), appenders)


def check_messages(path: str, messages: list[Message], appenders: Sequence[Appender]) -> None:
    """The same for messages that were read already."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, number in _requests(path, messages):
        found[name].append(number)
    assert set(found) <= {appender.name for appender in appenders}
    for appender in appenders:
        numbers = found[appender.name]
        assert numbers == sorted(set(numbers)), (path, appender.name, "twice, or out of order")
        assert appender.acknowledged <= set(numbers), (path, sorted(appender.acknowledged - set(numbers)))
        assert set(numbers) <= appender.sent


def json_message(value: dict[str, Any]) -> Message:
    """Who sent a JSON message."""
    return Message(value["w"], value["n"], value["part"], value["parts"])


def binary_messages(path: str, data: bytes) -> list[Message]:
    """Who sent the messages in a stream of bytes, which has nothing else."""
    messages, end = [], 0
    for match in _MESSAGE.finditer(data):
        assert match.start() == end, (path, end, data[end : end + 100])
        end = match.end()
        messages.append(Message(match[1].decode(), int(match[2]), int(match[3]), int(match[4])))
    assert end == len(data), (path, data[end : end + 100])
    return messages


def _requests(path: str, messages: list[Message]) -> list[tuple[str, int]]:
    """The requests in a stream; the messages of each lie side by side and are all there."""
    requests, index = [], 0
    while index < len(messages):
        first = messages[index]
        together = messages[index : index + first.parts]
        assert together == [first._replace(part=part) for part in range(first.parts)], (path, together)
        requests.append((first.writer, first.number))
        index += first.parts
    return requests


class Crowd:
    """All writers of a test, over several streams."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.streams: dict[str, list[Appender]] = {}
        for kind in ("binary", "json"):
            for number in range(2):
                path = f"/v1/stream/{kind}-{number}"
                self.streams[path] = [
                    Appender(f"{kind}-{number}-{index}", self._fork(), path, index % 2 == 0, kind == "json")
                    for index in range(3)
                ]
        self.lifecycles = [Lifecycle(f"life-{index}", self._fork()) for index in range(2)]

    @property
    def writers(self) -> list[Writer]:
        """Everyone."""
        return [*(a for appenders in self.streams.values() for a in appenders), *self.lifecycles]

    @property
    def acknowledged(self) -> int:
        """How many appends were promised."""
        return sum(len(writer.acknowledged) for writer in self.writers)

    def make_streams(self, server: Server) -> None:
        """Create the shared streams."""
        client = Client(server)
        for path, appenders in self.streams.items():
            answer = client.ask("PUT", path, headers=JSON if appenders[0].is_json else BINARY)
            assert answer.status in (200, 201), answer
        client.close()

    def start(self, server: Server) -> None:
        """Everyone begins to write."""
        for writer in self.writers:
            writer.start(server)

    def finish(self) -> None:
        """Everyone ends."""
        for writer in self.writers:
            writer.finish()

    def check(self, server: Server, sample: int | None = None) -> None:
        """Compare all streams with what was promised; of the short-lived ones perhaps only some."""
        client = Client(server)
        for path, appenders in self.streams.items():
            check_stream(client, path, appenders)
        for lifecycle in self.lifecycles:
            lives = list(lifecycle.streams.values())
            if sample is not None and len(lives) > 2 * sample:
                lives = lives[-sample:] + self._random.sample(lives[:-sample], sample)
            for life in lives:
                life.check(client)
        client.close()

    def _fork(self) -> Random:
        return Random(self._random.getrandbits(64))
