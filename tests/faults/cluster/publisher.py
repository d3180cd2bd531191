"""A writer that publishes snapshots of its stream, each as often as it takes to be acknowledged."""

from hashlib import sha256
from random import Random

from tests.faults.client import Answer, Client
from tests.faults.cluster.roamer import ask
from tests.faults.feed import Feed
from tests.faults.snapshots import SIZES, bootstrap_parts, digest_of
from tests.faults.writers import BINARY, Appender, binary_messages, check_messages


class Publisher(Appender):
    """Appends as a producer and publishes; nobody else does either."""

    def __init__(self, name: str, random: Random, path: str) -> None:
        super().__init__(name, random, path, produces=True, is_json=False)
        self.published = 0
        """The offset of the last acknowledged snapshot."""
        self._next = 0
        self._tail = 0

    def write(self, client: Client) -> None:
        """Look, append, and then perhaps publish; what was not acknowledged is repeated first."""
        self.look(client)
        super().write(client)
        if self._next == self.published and self.random.random() < 0.3:
            self._next = self._tail
        if self._next != self.published:
            body = _state_at(self._next)
            answer = ask(client, "PUT", f"{self.path}/snapshot/{self._next}", body, BINARY)
            assert answer.status == 204, (self.name, answer)
            self.published = self._next

    def take(self, answer: Answer) -> bool:
        """Remember where the append ended."""
        acknowledged = super().take(answer)
        self._tail = int(answer.headers["stream-next-offset"])
        return acknowledged

    def look(self, client: Client) -> None:
        """The last snapshot is there, or the one that is being published, with all of its bytes."""
        answer = ask(client, "HEAD", self.path)
        assert answer.status == 200, (self.name, answer)
        shown = int(answer.headers.get("stream-snapshot-offset", 0))
        assert shown in (self.published, self._next), (self.name, shown, self.published, self._next)
        assert int(answer.headers.get("stream-earliest-offset", 0)) == shown, (self.name, answer)
        if shown and self.random.random() < 0.2:
            answer = ask(client, "GET", f"{self.path}/snapshot/{shown}")
            assert answer.status == 200, (self.name, answer.status, answer.body[:300])
            assert digest_of(answer.body) == digest_of(_state_at(shown)), (self.name, shown, len(answer.body))

    def check(self, client: Client, feed: Feed) -> None:
        """The feed has every append once; the snapshot and everything after it come in one answer."""
        check_messages(self.path, binary_messages(self.path, feed.content(self.path, since=0)), [self])
        answer = client.ask("GET", f"{self.path}/bootstrap")
        assert answer.status == 200, (self.name, answer)
        first, *messages = bootstrap_parts(answer)
        shown = int(client.ask("HEAD", self.path).headers.get("stream-snapshot-offset", 0))
        assert shown in (self.published, self._next), (self.name, shown, self.published, self._next)
        assert digest_of(first) == digest_of(_state_at(shown) if shown else b""), (self.name, shown)
        assert b"".join(messages) == client.read(self.path), (self.name, "bootstrap and stream differ")


def _state_at(offset: int) -> bytes:
    """The body of the snapshot at an offset, of various sizes."""
    digest = sha256(str(offset).encode()).digest()
    return (digest * (SIZES[-1] // len(digest) + 1))[: SIZES[digest[0] % len(SIZES)]]
