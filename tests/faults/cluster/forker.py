"""A writer that forks a stream at its tail again and again, and appends to each fork."""

from random import Random

from tests.faults.client import Client
from tests.faults.cluster.roamer import ask
from tests.faults.writers import TEXT, Writer

FORKS_CHECKED = 30


class Forker(Writer):
    """Each fork is made and appended to by requests that are repeated until they are acknowledged."""

    def __init__(self, name: str, random: Random, source: str) -> None:
        super().__init__(name, random)
        self._source = source
        self._forks: dict[str, int] = {}
        """The finished ones, each with the offset from which it is its own."""
        self._offset: int | None = None
        """That of the fork that is not finished."""

    def write(self, client: Client) -> None:
        """Make one fork, and look at it."""
        if self._offset is None:
            answer = ask(client, "HEAD", self._source)
            assert answer.status == 200, answer
            self.number += 1
            self._offset = int(answer.headers["stream-next-offset"])
        path = self._path(self.number)
        origin = {"stream-forked-from": self._source, "stream-fork-offset": f"{self._offset:020}"}
        answer = ask(client, "PUT", path, headers=TEXT | origin)
        assert answer.status in (200, 201), answer
        producer = {"producer-id": self.name, "producer-epoch": "0", "producer-seq": "0"}
        answer = ask(client, "POST", path, path.encode(), TEXT | producer)
        assert answer.status in (200, 204), answer
        answer = ask(client, "HEAD", path)
        assert int(answer.headers["stream-next-offset"]) == self._offset + len(path), answer
        self._forks[path] = self._offset
        self._offset = None

    def check(self, client: Client) -> None:
        """Each of the last forks has what the source had, and then its own."""
        source = client.read(self._source)
        for path, offset in [*self._forks.items()][-FORKS_CHECKED:]:
            assert client.read(path) == source[:offset] + path.encode(), (path, offset)

    def _path(self, number: int) -> str:
        return f"{self._source}-{self.name}-{number}"
