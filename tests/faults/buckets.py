"""Buckets that are deleted twice and written to at the same moment: never a stream without its bucket."""

import json
from random import Random

from tests.faults.client import Answer, Client, NoAnswer
from tests.faults.writers import BINARY, Stopped, Writer
from tests.server import Server


class BucketRacer(Writer):
    """Makes one bucket after the other and has three clients fall upon it."""

    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random)
        self.races: list[Race] = []
        self._others: list[Client] = []

    def start(self, server: Server) -> None:
        """Begin, with two more connections."""
        self._others = [Client(server), Client(server)]
        super().start(server)

    def finish(self) -> None:
        """End, and hang up."""
        super().finish()
        for client in self._others:
            client.close()

    def write(self, client: Client) -> None:
        """The whole life of one bucket."""
        self.number += 1
        body = self.random.choice((b"", b"", b"here"))  # one without a body is decided sooner
        race = Race(f"{self.name}-{self.number}", self.random.random() < 0.3, body)
        self.races.append(race)
        race.make(client)
        race.run([client, *self._others], first=self.random.randrange(3))
        if self.random.random() < 0.5:
            race.clear(client)

    def check(self, client: Client, sample: int) -> None:
        """Compare what was promised with what is there, for the newest and some others."""
        races = self.races
        if len(races) > 2 * sample:
            races = races[-sample:] + self.random.sample(races[:-sample], sample)
        for race in races:
            race.check(client)


class Race:
    """One bucket: what was tried, and how it was answered."""

    def __init__(self, bucket: str, is_flat: bool, body: bytes) -> None:
        self.bucket = bucket
        self._bucket_path = f"/{bucket}"
        self._path = f"/{bucket}/a"
        self._create_path = f"/v1/stream/{bucket}/a" if is_flat else self._path
        self._is_flat = is_flat
        self._body = body
        self._made = False
        self._deletes: list[int] = []
        self._created: int | None = None
        self._clearing = self._cleared = False
        self._seen: tuple[bool, bool] | None = None
        """Whether bucket and stream were there after a restart: from then on nobody writes."""

    def make(self, client: Client) -> None:
        """Make the bucket."""
        assert _ask(client, "PUT", self._bucket_path).status == 201
        self._made = True

    def run(self, clients: list[Client], first: int) -> None:
        """Delete it, delete it and create a stream in it, all at once, beginning with any of these."""
        requests = [
            ("DELETE", self._bucket_path, None, {}),
            ("PUT", self._create_path, self._body, BINARY),
            ("DELETE", self._bucket_path, None, {}),
        ]
        requests = requests[first:] + requests[:first]
        for client, request in zip(clients, requests, strict=True):
            client.begin(*request)
        lost = None
        for client, (method, *_) in zip(clients, requests, strict=True):
            try:
                answer = client.answer()
            except NoAnswer as error:
                lost = error
                continue
            if answer.status == 503:
                lost = NoAnswer("503")
            elif method == "PUT":
                self._created = answer.status
            else:
                self._deletes.append(answer.status)
        self._check_answers()
        if lost is not None:
            raise lost

    def clear(self, client: Client) -> None:
        """Delete the stream, if it is there, and then the bucket."""
        self._clearing = True
        assert _ask(client, "DELETE", self._path).status in (204, 404)
        assert _ask(client, "DELETE", self._bucket_path).status in (204, 404)
        self._cleared = True

    def check(self, client: Client) -> None:
        """What was promised is so, and what was not promised is one or the other for good."""
        bucket, stream = self._look(client)
        case = (self.bucket, bucket, stream, self._deletes, self._created, self._clearing, self._cleared)
        assert bucket or not stream, (case, "a stream without its bucket")
        assert self._seen in (None, (bucket, stream)), (case, self._seen, "changed")
        self._seen = (bucket, stream)
        if self._cleared:
            assert not bucket, (case, "came back")
        elif not self._clearing:
            if self._created == 201:
                assert stream, (case, "is lost")
            if 204 in self._deletes and not self._is_flat:
                assert not bucket, (case, "came back")
            if 204 not in self._deletes and self._made and None not in (self._created, *self._deletes):
                assert bucket or len(self._deletes) < 2, (case, "is lost")

    def _look(self, client: Client) -> tuple[bool, bool]:
        """Whether bucket and stream are there, by all ways to ask."""
        stream = client.ask("HEAD", self._path).status == 200
        assert (client.ask("HEAD", f"/v1/stream/{self.bucket}/a").status == 200) == stream
        described = client.ask("GET", self._bucket_path)
        listed = client.ask("GET", f"{self._bucket_path}/streams")
        feed = client.ask("GET", f"{self._bucket_path}?offset=-1")
        assert described.status == listed.status == feed.status, (described, listed, feed)
        if described.status != 200:
            assert described.status == 404, described
            return False, stream
        assert json.loads(described.body)["streams"] == stream, described
        assert [one["stream_id"] for one in json.loads(listed.body)["streams"]] == ["a"] * stream, listed
        rows = [json.loads(line)["kind"] for line in feed.body.splitlines()]
        begun = ["create", *["append"] * bool(self._body)]
        assert rows in ((begun,) if stream else ([], [*begun, "delete"])), rows
        return True, stream

    def _check_answers(self) -> None:
        """The answers fit together: there is an order of the three requests in which they are right."""
        case = (self.bucket, self._is_flat, self._deletes, self._created)
        assert set(self._deletes) <= {204, 404, 409}, case
        assert self._created in ((201, None) if self._is_flat else (201, 404, None)), case
        assert self._deletes.count(204) < 2, case
        if not self._is_flat:
            assert not (self._created == 201 and 204 in self._deletes), case
            assert not (self._created == 404 and 409 in self._deletes), case


def _ask(client: Client, method: str, path: str) -> Answer:
    answer = client.ask(method, path)
    if answer.status == 503:
        raise Stopped
    return answer
