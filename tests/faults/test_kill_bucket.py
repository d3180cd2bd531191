"""kill -9 at any moment: what a bucket shows and what its feed tells stay one and the same."""

import json
import time
from pathlib import Path
from random import Random

import pytest
from tests.faults.attributes import Attributer
from tests.faults.batches import Batcher
from tests.faults.buckets import BucketRacer
from tests.faults.client import Client
from tests.faults.consumer import KINDS
from tests.faults.consumers import Consumer
from tests.faults.feed import Feed, payload
from tests.faults.rounds import ROUNDS, seeded
from tests.faults.snapshots import Snapshotter
from tests.faults.writers import (
    BINARY,
    JSON,
    Appender,
    Lifecycle,
    Writer,
    binary_messages,
    check_messages,
    json_message,
)
from tests.server import Server

BUCKET = "faults"
SMALL_SEGMENTS = {"limits.log_segment_bytes": "256KiB"}


class Everyone:
    """All who write to a bucket and all who follow it, and the feed that tells of it."""

    def __init__(self, random: Random, folder: Path) -> None:
        self._random = random
        self.feed = Feed(BUCKET)
        self.appenders: dict[str, list[Appender]] = {}
        self.attributers: list[Attributer] = []
        for kind in ("binary", "json"):
            path, is_json = f"/{BUCKET}/{kind}", kind == "json"
            self.appenders[path] = [
                Appender(f"{kind}-one", self._fork(), path, True, is_json),
                Batcher(f"{kind}-batch", self._fork(), path, False, is_json),
                Batcher(f"{kind}-batch-producer", self._fork(), path, True, is_json),
                Snapshotter(f"{kind}-snapshots", self._fork(), path, False, is_json),
            ]
            self.attributers.append(Attributer(f"{kind}-attributes", self._fork(), path))
        path = f"/{BUCKET}/quiet"
        self.appenders[path] = [Snapshotter("quiet-snapshots", self._fork(), path, True, False)]
        self.lifecycle = Lifecycle(f"{BUCKET}/life", self._fork())
        self.racers = [BucketRacer(f"race-{number}", self._fork()) for number in range(2)]
        self.consumers = [Consumer(kind, folder / kind) for kind in KINDS]

    @property
    def snapshotters(self) -> list[Snapshotter]:
        """Those who publish snapshots."""
        return [a for found in self.appenders.values() for a in found if isinstance(a, Snapshotter)]

    @property
    def writers(self) -> list[Writer]:
        """All who write."""
        appenders = [appender for found in self.appenders.values() for appender in found]
        return [*appenders, *self.attributers, self.lifecycle, *self.racers]

    def make_streams(self, server: Server) -> None:
        """Make the bucket and the shared streams, once."""
        client = Client(server)
        assert client.ask("PUT", f"/{BUCKET}").status == 201
        for path, appenders in self.appenders.items():
            headers = JSON if appenders[0].is_json else BINARY
            assert client.ask("PUT", path, headers=headers).status == 201
        client.close()

    def follow(self, server: Server) -> None:
        """All consumers that do not run go on, whether the server is ready or not."""
        for consumer in self.consumers:
            consumer.start(server, BUCKET)

    def write(self, server: Server, seconds: float) -> None:
        """All write for a while; some consumers are killed, miss some, and are killed while they catch up."""
        killed = self._random.sample(self.consumers, 2)
        for writer in self.writers:
            writer.start(server)
        time.sleep(seconds / 4)
        for consumer in killed:
            consumer.kill()
        time.sleep(seconds / 2)
        for consumer in killed:
            consumer.start(server, BUCKET)
        time.sleep(seconds / 4)
        for consumer in self._random.sample(self.consumers, 2):
            consumer.kill()

    def rest(self) -> None:
        """All writers and consumers end, when the server is gone."""
        self.finish()
        for consumer in self.consumers:
            consumer.finish()

    def finish(self) -> None:
        """All writers end."""
        for writer in self.writers:
            writer.finish()

    def check(self, server: Server) -> None:
        """Compare what is there with what was promised, and with what the feed tells."""
        client = Client(server)
        self.feed.read_on(client)
        for attributer in self.attributers:
            attributer.check(client, self.feed)
        for snapshotter in self.snapshotters:
            snapshotter.check(client, self.feed)
        for path, appenders in self.appenders.items():
            self._check_appends(path, appenders)
            if appenders[0].is_json:
                self._check_records(client, path)
        self._check_lives(client)
        for racer in self.racers:
            racer.check(client, sample=15)
        client.close()

    def check_consumers(self, server: Server) -> None:
        """Every consumer has what the feed tells, line by line: nothing left out, nothing twice."""
        client = Client(server)
        again = Feed(BUCKET)
        again.read_on(client)
        assert again.lines[: len(self.feed.lines)] == self.feed.lines, "what was told has changed"
        count, position = len(again.lines), again.position
        for consumer in self.consumers:
            consumer.wait_for(position)
            consumer.kill()
        again.read_on(client)  # some streams end by themselves
        for consumer in self.consumers:
            taken = consumer.lines
            assert len(taken) >= count, (consumer.kind, len(taken), count)
            for number, (one, other) in enumerate(zip(taken, again.lines, strict=False)):
                assert one == other, (consumer.kind, number)
        client.close()

    def check_buckets(self, server: Server) -> None:
        """The list of buckets has those that are there, and no other."""
        client = Client(server)
        listed, after, more = [], "", True
        while more:
            page = json.loads(client.ask("GET", f"/cluster/buckets?after={after}&limit=100").body)
            listed += [bucket["bucket_id"] for bucket in page["buckets"]]
            after, more = page["next_cursor"], page["has_more"]
        races = [race for racer in self.racers for race in racer.races]
        assert sorted(listed) == sorted(
            [BUCKET, *(race.bucket for race in races if client.ask("GET", f"/{race.bucket}").status == 200)]
        )
        client.close()

    def _check_appends(self, path: str, appenders: list[Appender]) -> None:
        rows = self.feed.events(path, "append")
        if appenders[0].is_json:
            messages = [json_message(row["value"]) for row in rows]
        else:
            messages = [message for row in rows for message in binary_messages(path, payload(row))]
        check_messages(path, messages, appenders)
        if appenders[0].is_json:
            records = {
                (m.writer, m.number): row["record"]
                for m, row in zip(messages, rows, strict=True)
                if m.part == 0
            }
            for appender in appenders:
                for number, record in appender.records.items():
                    assert records[appender.name, number] == record, (appender.name, number)

    def _check_records(self, client: Client, path: str) -> None:
        rows = self.feed.events(path, "append")
        head = client.ask("HEAD", path).headers
        first = sum(int(row["offset"]) < int(head.get("stream-earliest-offset", 0)) for row in rows)
        assert (head["stream-record-first"], head["stream-record-next"]) == (str(first), str(len(rows)))
        answer = client.ask("GET", f"{path}?tail_records=20&record_view=envelope")
        wanted = [
            {"record": row["record"], "value": row["value"]} for row in rows[max(first, len(rows) - 20) :]
        ]
        assert [json.loads(line) for line in answer.body.splitlines()] == wanted

    def _check_lives(self, client: Client) -> None:
        lives = list(self.lifecycle.streams.values())
        for life in lives[-30:] + self._random.sample(lives, min(10, len(lives))):
            life.check(client)
        for life in lives:
            path = life.path.removeprefix("/v1/stream")
            for kind in ("create", "close", "delete"):
                told = len(self.feed.events(path, kind))
                assert (kind in life.done) <= told <= (kind in life.tried), (path, kind, told)
            with_body = {"create", "append", "close"}
            appends = len(self.feed.events(path, "append"))
            assert len(with_body & life.done) <= appends <= len(with_body & life.tried), (path, appends)

    def _fork(self) -> Random:
        return Random(self._random.getrandbits(64))


def unfinished(data_dir: Path) -> set[Path]:
    """The half-written files."""
    return set((data_dir / "cold" / "tmp").glob("*"))


def check_files(data_dir: Path, everyone: Everyone, rounds: int, cut_off: set[Path]) -> None:
    """No half-written file is left, and no more blobs without a name than uploads were cut off."""
    assert not unfinished(data_dir) & cut_off
    stored = {path.name for path in (data_dir / "cold" / "blobs").glob("*/*/*")}
    named, visible = set(), set()
    for snapshotter in everyone.snapshotters:
        told = [
            row["event"]["blob"].rpartition("/")[2]
            for row in everyone.feed.events(snapshotter.path, "snapshot")
        ]
        named.update(told)
        visible.update(told[-1:])
    assert visible <= stored
    assert len(stored - named) <= 2 * len(everyone.snapshotters) * rounds


@pytest.mark.timeout(900)
def test_a_bucket_and_all_who_follow_it_survive_that_the_server_is_killed(tmp_path: Path) -> None:
    random = seeded("bucket")
    everyone = Everyone(random, tmp_path)
    data_dir = tmp_path / "data"
    cut_off: set[Path] = set()
    with Server(data_dir, settings=SMALL_SEGMENTS) as server:
        everyone.make_streams(server)
        for number in range(ROUNDS):
            everyone.follow(server)
            server.wait_until_ready()
            assert server.complaints() == []
            everyone.check(server)
            check_files(data_dir, everyone, number, cut_off)
            everyone.write(server, random.uniform(0.05, 0.8))
            server.kill()
            cut_off |= unfinished(data_dir)
            everyone.rest()
            if number % 3 == 1:
                # And once more at any moment of the start.
                server.start(ready=False)
                everyone.follow(server)
                time.sleep(random.uniform(0, 0.3))
                server.kill()
                for consumer in everyone.consumers:
                    consumer.kill()
            server.start(ready=False)
        everyone.follow(server)
        server.wait_until_ready()
        everyone.check(server)
        everyone.write(server, 0.3)
        everyone.finish()
        everyone.follow(server)
        everyone.check(server)
        everyone.check_consumers(server)
        everyone.check_buckets(server)
        assert server.complaints() == []
        assert server.stop() == 0
    print(f"{len(cut_off)} uploads were cut off by {ROUNDS} kills")
    assert cut_off, "no kill fell into an upload"
    assert all(writer.acknowledged or writer.number for writer in everyone.writers)
    assert all(len(snapshotter.snapshots) > ROUNDS / 2 for snapshotter in everyone.snapshotters)
