"""A writer that publishes snapshots of its stream and trims it.

An acknowledged snapshot is there with all its bytes; one that was not answered is there whole or not
at all, and the earliest offset goes with it; one that was never sent to its end is never there.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.faults.client import Answer, Client, NoAnswer
from tests.faults.feed import Feed
from tests.faults.writers import Appender, Stopped

SIZES = (0, 10, 5_000, 200_000, 1_500_000)
PAUSE_SECONDS_MAX = 0.05


class Abandoned(Exception):
    """The client gives up in the middle of a body."""


class Snapshot(NamedTuple):
    """A snapshot that was sent, told by what its bytes come to."""

    offset: int
    digest: str
    size: int
    content_type: str


class Shown(NamedTuple):
    """What a stream shows of its past."""

    snapshot: Snapshot | None
    earliest: int


class Snapshotter(Appender):
    """Appends to a stream, publishes snapshots of it and trims it; nobody else does the last two."""

    def __init__(self, name: str, random: Random, path: str, produces: bool, is_json: bool) -> None:
        super().__init__(name, random, path, produces, is_json)
        self.snapshots: list[Snapshot] = []
        self.trims: list[int] = []
        self.attempts = 0
        self._boundaries: list[int] = []
        self._shown = Shown(None, 0)
        self._unanswered_change: Shown | None = None

    def write(self, client: Client) -> None:
        """An append, and then perhaps something with what lies before it."""
        super().write(client)
        step = self.random.choice((self._publish, self._publish, self._trim, self._abandon, self._repeat))
        step(client)

    def take(self, answer: Answer) -> bool:
        """Remember where the append ended."""
        acknowledged = super().take(answer)
        if answer.status == (200 if self.produces else 204):
            self._boundaries.append(int(answer.headers["stream-next-offset"]))
        return acknowledged

    def check(self, client: Client, feed: Feed) -> None:
        """Compare what was promised with what is there and what is told of it."""
        head = client.ask("HEAD", self.path)
        assert head.status == 200, head
        found = (
            head.headers.get("stream-snapshot-offset"),
            int(head.headers.get("stream-earliest-offset", 0)),
        )
        change = self._unanswered_change
        if change is not None and found == _as_headers(change):
            self._carried_out()
        assert found == _as_headers(self._shown), (self.name, found, self._shown, change)
        self._unanswered_change = None
        self._check_bytes(client)
        self._check_bootstrap(client, feed)
        self._check_earliest(client, feed)
        told = [row["event"] for row in feed.events(self.path, "snapshot")]
        sent = [Snapshot(e["offset"], e["digest"], e["size"], e["content_type"]) for e in told]
        assert sent == self.snapshots, (self.name, len(sent), len(self.snapshots))
        trims = [row["event"]["earliest"] for row in feed.events(self.path, "trim")]
        assert trims == self.trims, (self.name, trims[-3:], self.trims[-3:])

    def _check_bytes(self, client: Client) -> None:
        latest = client.ask("GET", f"{self.path}/snapshot")
        snapshot = self._shown.snapshot
        if snapshot is None:
            assert latest.status == 404, (self.name, latest)
            return
        assert latest.status == 307, (self.name, latest)
        answer = client.ask("GET", f"{self.path}/snapshot/{snapshot.offset}")
        assert answer.status == 200, (self.name, answer.status, answer.body[:300])
        assert digest_of(answer.body) == snapshot.digest, (self.name, len(answer.body), snapshot)
        assert answer.headers["stream-snapshot-digest"] == snapshot.digest
        assert answer.headers["content-type"] == snapshot.content_type

    def _check_bootstrap(self, client: Client, feed: Feed) -> None:
        """The snapshot and all that came after it, in one answer."""
        answer = client.ask("GET", f"{self.path}/bootstrap")
        assert answer.status == 200, (self.name, answer.status, answer.body[:300])
        first, *messages = bootstrap_parts(answer)
        snapshot, earliest = self._shown
        assert digest_of(first) == (snapshot.digest if snapshot else digest_of(b"")), self.name
        since = snapshot.offset if snapshot else earliest
        assert b"".join(messages) == feed.content(self.path, since), (self.name, "bootstrap and feed differ")

    def _check_earliest(self, client: Client, feed: Feed) -> None:
        earliest = self._shown.earliest
        if earliest:
            below = client.ask("GET", f"{self.path}?offset={earliest - 1}")
            assert below.status == 410, (self.name, below)
            assert int(below.headers["stream-earliest-offset"]) == earliest
        pages = client.pages(self.path)
        if self.is_json:
            content = b"".join(json.dumps(value).encode() for page in pages for value in json.loads(page))
        else:
            content = b"".join(pages)
        assert content == feed.content(self.path, since=earliest), (self.name, "stream and feed differ")

    def _publish(self, client: Client) -> None:
        """A new snapshot somewhere between the last one and the tail."""
        last = self._shown.snapshot.offset if self._shown.snapshot else 0
        offsets = [offset for offset in self._boundaries if offset > last]
        if not offsets:
            return
        snapshot, body = self._new_snapshot(self.random.choice(offsets))
        trim = self.random.random() < 0.6
        self._unanswered_change = Shown(snapshot, snapshot.offset if trim else self._shown.earliest)
        answer = self._put(client, snapshot, self._pieces(body), "" if trim else "?trim=false")
        assert answer.status == 204, (self.name, answer)
        assert answer.headers["stream-snapshot-digest"] == snapshot.digest
        self._carried_out()

    def _trim(self, client: Client) -> None:
        """Drop what lies before an offset up to the snapshot."""
        snapshot, earliest = self._shown
        offsets = [at for at in self._boundaries if snapshot and earliest < at <= snapshot.offset]
        if not offsets:
            return
        self._unanswered_change = Shown(snapshot, self.random.choice(offsets))
        answer = client.ask("PUT", f"{self.path}/retention/{self._unanswered_change.earliest}")
        self._stop_on_503(answer)
        assert answer.status == 204, (self.name, answer)
        self._carried_out()

    def _abandon(self, client: Client) -> None:
        """A snapshot whose body never comes to its end."""
        snapshot, body = self._new_snapshot(self._boundaries[-1] if self._boundaries else 0, SIZES[1:])

        def pieces() -> Iterator[bytes]:
            yield body[: len(body) // 2]
            time.sleep(self.random.uniform(0, PAUSE_SECONDS_MAX))
            raise Abandoned

        try:
            client.begin("PUT", f"{self.path}/snapshot/{snapshot.offset}", pieces(), self._headers(snapshot))
        except Abandoned:
            client.close()

    def _repeat(self, client: Client) -> None:
        """The offset of the last snapshot is not taken by another."""
        snapshot = self._shown.snapshot
        if snapshot is not None:
            other, body = self._new_snapshot(snapshot.offset)
            answer = self._put(client, other, [body], "?trim=false")
            same = other.digest == snapshot.digest  # whatever it is said to be
            assert answer.status == (204 if same else 409), (self.name, answer)

    def _put(
        self, client: Client, snapshot: Snapshot, pieces: Iterator[bytes] | list[bytes], query: str
    ) -> Answer:
        self.attempts += 1
        path = f"{self.path}/snapshot/{snapshot.offset}{query}"
        answer = client.ask("PUT", path, pieces, self._headers(snapshot))
        self._stop_on_503(answer)
        return answer

    def _headers(self, snapshot: Snapshot) -> dict[str, str]:
        """With a length or in chunks."""
        headers = {"content-type": snapshot.content_type}
        return headers | {"content-length": str(snapshot.size)} if self.random.random() < 0.5 else headers

    def _pieces(self, body: bytes) -> Iterator[bytes]:
        """A body that takes its time, or not."""
        pause = self.random.choice((0, 0, PAUSE_SECONDS_MAX))
        step = len(body) // self.random.randrange(1, 5) + 1
        for at in range(0, len(body), step):
            yield body[at : at + step]
            time.sleep(self.random.uniform(0, pause))

    def _new_snapshot(self, offset: int, sizes: tuple[int, ...] = SIZES) -> tuple[Snapshot, bytes]:
        body = self.random.randbytes(self.random.choice(sizes))
        content_type = self.random.choice(("text/plain", "application/x-state"))
        return Snapshot(offset, digest_of(body), len(body), content_type), body

    def _carried_out(self) -> None:
        change, before = self._unanswered_change, self._shown
        if change is None:
            raise NoAnswer("nothing was asked for")
        self._shown, self._unanswered_change = change, None
        if change.snapshot is not None and change.snapshot != before.snapshot:
            self.snapshots.append(change.snapshot)
        if change.earliest != before.earliest:
            self.trims.append(change.earliest)
        self._boundaries = [offset for offset in self._boundaries if offset > change.earliest]

    def _stop_on_503(self, answer: Answer) -> None:
        if answer.status == 503:
            raise Stopped


def _as_headers(shown: Shown) -> tuple[str | None, int]:
    return f"{shown.snapshot.offset:020}" if shown.snapshot is not None else None, shown.earliest


def bootstrap_parts(answer: Answer) -> list[bytes]:
    """The snapshot and the messages after it."""
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    begin, *parts, end = (b"\r\n" + answer.body).split(b"\r\n--" + boundary)
    assert (begin, end) == (b"", b"--\r\n")
    return [part.partition(b"\r\n\r\n")[2] for part in parts]


def digest_of(body: bytes) -> str:
    """As the server writes it."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
