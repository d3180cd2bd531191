"""All clients of a cluster at once, in buckets of their own, and what must be true of these afterwards."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from random import Random

from tests.faults.batches import Batcher
from tests.faults.client import Client
from tests.faults.cluster.clients import LASTING, MORTAL, Witness
from tests.faults.cluster.expirer import Expirer
from tests.faults.cluster.forker import Forker
from tests.faults.cluster.ingester import Ingester
from tests.faults.cluster.publisher import Publisher
from tests.faults.cluster.readers import Reader
from tests.faults.cluster.roamer import Roamer
from tests.faults.consumer import KINDS
from tests.faults.feed import Feed
from tests.faults.large_bodies import LargeAppender
from tests.faults.linearizable import check
from tests.faults.writers import BINARY, JSON, Appender, Lifecycle, Writer, check_stream
from tests.http.raw import Place

REST_SECONDS = (0.03, 0.1, 1.0, 0.3, 0.5, 0.3, 0.2, 0.2)
"""How long each kind of writer rests after a step: longer after one with large bodies."""

LIVES_CHECKED = 30

Work = Callable[[threading.Event], None]


class Crowd:
    """Witnesses, who check every answer of a few streams, and writers and readers of everything else."""

    def __init__(self, bucket: str, places: Sequence[Place], random: Random) -> None:
        self._bucket = bucket
        self._places = places
        self._random = random
        urls = [f"http://{place.host}:{place.port}" for place in places]
        folder = f"/{bucket}"
        self._witnesses = [
            *(Witness(f"{folder}/lasting-{number}", urls, self._fork(), LASTING, 3) for number in range(2)),
            *(Witness(f"{folder}/mortal-{number}", urls, self._fork(), MORTAL, 3) for number in range(2)),
        ]
        source = self._witnesses[0].path
        self._readers = [
            Reader(path, kind, places, self._fork()) for path in (source, folder) for kind in KINDS
        ]
        self._appenders = [
            Appender("json", self._fork(), f"{folder}/json", produces=True, is_json=True),
            Batcher("batches", self._fork(), f"{folder}/batches", produces=True, is_json=False),
            LargeAppender("large", self._fork(), f"{folder}-large/large", produces=True, is_json=False),
        ]
        self._publisher = Publisher("published", self._fork(), f"{folder}/published")
        self._forker = Forker("fork", self._fork(), source)
        self._ingester = Ingester("rows", self._fork(), bucket)
        self._lifecycle = Lifecycle(f"{bucket}-life", self._fork())
        expirer = Expirer("brief", self._fork(), bucket)
        writers = (
            *self._appenders,
            self._publisher,
            self._forker,
            self._ingester,
            self._lifecycle,
            expirer,
        )
        self._writers: dict[Writer, float] = dict(zip(writers, REST_SECONDS, strict=True))
        self._running: list[Future[None]] = []

    @property
    def acknowledged(self) -> int:
        """How many appends of witnesses were acknowledged."""
        return sum(witness.acknowledged for witness in self._witnesses)

    def begin(self) -> None:
        """Make the bucket and the streams."""
        with closing(Client(self._places[0])) as client:
            for bucket in (self._bucket, f"{self._bucket}-large"):
                assert client.ask("PUT", f"/{bucket}").status == 201
            for appender in (*self._appenders, self._publisher):
                headers = JSON if appender.is_json else BINARY
                assert client.ask("PUT", appender.path, headers=headers).status == 201
        for witness in self._witnesses:
            witness.create()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let all of them work until the block ends, and pass on what went wrong."""
        work: list[Work] = [client for witness in self._witnesses for client in witness.work()]
        work += [Roamer(one, self._places, self._fork(), rest).work for one, rest in self._writers.items()]
        work += [reader.work for reader in self._readers]
        over = threading.Event()
        with ThreadPoolExecutor(len(work)) as pool:
            self._running = [pool.submit(one, over) for one in work]
            try:
                yield
            finally:
                over.set()
        self.look()

    def look(self) -> None:
        """Pass on what went wrong until now."""
        for one in self._running:
            if one.done():
                one.result()

    def check(self) -> None:
        """Compare what was answered with what is there now, on all nodes."""
        for witness in self._witnesses:
            first, *others = witness.read_on_all_nodes()
            assert all(other == first for other in others), witness.path
        feeds = [self._check_on(place) for place in self._places]
        size = min(len(feed.lines) for feed in feeds)
        assert all(feed.lines[:size] == feeds[0].lines[:size] for feed in feeds), "the feeds differ"
        with closing(Client(self._places[0])) as client:
            for reader in self._readers:
                is_feed = reader.path == f"/{self._bucket}"
                reader.check(
                    partial(_feed, feeds[0], client) if is_feed else partial(client.read, reader.path)
                )
        for witness in self._witnesses:
            check(witness.history)

    def _check_on(self, place: Place) -> Feed:
        feed = Feed(self._bucket)
        with closing(Client(place)) as client:
            feed.read_on(client)
            for appender in self._appenders:
                check_stream(client, appender.path, [appender])
            self._publisher.check(client, feed)
            self._forker.check(client)
            self._ingester.check(client)
            lives = list(self._lifecycle.streams.values())
            for life in lives[-LIVES_CHECKED:] + self._random.sample(lives, min(LIVES_CHECKED, len(lives))):
                life.check(client)
        return feed

    def _fork(self) -> Random:
        return Random(self._random.getrandbits(64))


def _feed(feed: Feed, client: Client) -> bytes:
    feed.read_on(client)
    return b"".join(feed.lines)
