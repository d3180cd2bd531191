"""A driver that is killed in the middle of its work, with its Java: its work, repeated, is done once.

That of a query and of a restore; those of other jobs take minutes: see `long_driver_killed.py`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cold.test_restore import FORGETFUL, client, look
from tests.cold.test_restore import fill as fill_with_every_kind
from tests.faults.rounds import IS_LONG
from tests.http.staged import ingest, stage
from tests.http.wire import content
from tests.pipeline import killed_programs
from tests.pipeline.driver_process import Driver
from tests.pipeline.tripwire import Request, Tripwire, When
from tests.server import Server, ServerExited

from ursula.pipeline import restore, verify

PIPELINE = ("-m", "ursula", "pipeline")
HOST = ("--master", "local[2]")
STREAMS, TURN_ROWS = 7, 200

pytestmark = pytest.mark.timeout(1800 if IS_LONG else 600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that flushes only on request, so that moments are the same each time."""
    folder = tmp_path_factory.mktemp("server") / "data"
    with Server(folder, settings={"cold.flush_interval": "1h"}) as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as one:
        yield one


def some(moments: list[Any]) -> list[Any]:
    """The first of these moments; all of them in a long run."""
    return moments if IS_LONG else moments[:1]


def killed(folder: Path, server: Server, moment: Request, *arguments: str) -> None:
    """Kill a driver at the moment of a request; ENDPOINT in its arguments stands for its server."""
    with Tripwire(server.url, moment) as wire:
        given = [argument.replace("ENDPOINT", wire.endpoint) for argument in arguments]
        with Driver(folder / "output", *given) as driver:
            driver.kill_when(lambda: wire.has_tripped)


def program(name: str, **arguments: Any) -> tuple[str, ...]:
    return (killed_programs.__file__, name, json.dumps({"endpoint": "ENDPOINT", **arguments}))


def messages(api: httpx.Client, bucket: str) -> list[tuple[str, bytes]]:
    """The messages of all streams of a bucket."""
    names = [listed["stream_id"] for listed in api.get(f"/{bucket}/streams").json()["streams"]]
    return [
        (name, value.strip())
        for name in names
        for value in content(api, f"/{bucket}/{name}").split(b";")[:-1]
    ]


def count_above(before: int, api: httpx.Client, bucket: str) -> int:
    """How many messages a bucket has: more than before, once the server has finished its work."""
    give_up_at = time.monotonic() + 30
    while (count := len(messages(api, bucket))) <= before and time.monotonic() < give_up_at:
        time.sleep(0.05)
    return count


# A query from a bucket into another


class Events:
    """A bucket that grows."""

    def __init__(self, api: httpx.Client, bucket: str) -> None:
        self._api = api
        self._bucket = bucket
        self._turns = 0
        self.written: list[tuple[str, bytes]] = []
        for name in (bucket, f"{bucket}-out"):
            api.put(f"/{name}").raise_for_status()

    def grow(self, turns: int) -> None:
        """Add this many segments, and as much in memory as one segment has."""
        for turn in range(turns + 1):
            first = self._turns * TURN_ROWS
            numbers = range(first, first + TURN_ROWS)
            rows = [(f"s{number % STREAMS}", b"%06d;" % number) for number in numbers]
            done = ingest(self._api, self._bucket, self._turns, [stage(self._api, self._bucket, rows)])
            assert done.status_code == 200, done.text
            self.written += [(stream, value[:-1]) for stream, value in rows]
            self._turns += 1
            if turn < turns:
                self._api.post("/cluster/flush").raise_for_status()


QUERY_MOMENTS = [
    Request("POST /cluster/staging", 4, When.UNANSWERED),
    Request("POST /cluster/ingest", 3, When.UNHEARD),
    Request("POST /cluster/ingest", 2, When.UNANSWERED),
    Request("GET /cluster/plan", 7, When.UNSENT),
    Request("POST /cluster/ingest", 2, When.UNSENT),
    Request("GET /cluster/plan", 5, When.UNHEARD),
    Request("POST /cluster/staging", 3, When.UNHEARD),
]


def test_a_query_whose_driver_is_killed_again_and_again_writes_each_row_once(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path
) -> None:
    events, checkpoint = Events(api, "events"), str(tmp_path / "checkpoint")
    arrived = 0
    for moment in some(QUERY_MOMENTS):
        events.grow(5 if IS_LONG else 3)
        asked = program("follow", bucket="events", checkpoint=checkpoint, partitions=2)
        killed(tmp_path, server, moment, *asked)
        before, arrived = arrived, count_above(arrived, api, "events-out")
        assert before < arrived < len(events.written), f"not in the middle at {moment}"
    api.post("/cluster/flush").raise_for_status()
    killed_programs.follow(spark, server.url, "events", checkpoint, 3)
    assert sorted(messages(api, "events-out")) == sorted(events.written)
    events.grow(0)
    killed_programs.follow(spark, server.url, "events", checkpoint, 1)
    assert sorted(messages(api, "events-out")) == sorted(events.written)


# A job


RESTORE_MOMENTS = ["segments/*/*.parquet", "generations/2.json", "generations/1.json", "manifests/*/*.json"]


@pytest.mark.parametrize("moment", some(RESTORE_MOMENTS))
def test_a_restore_that_was_killed_is_completed_by_the_next(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    with Server(tmp_path / "old", settings=FORGETFUL) as old, client(old) as api:
        fill_with_every_kind(api)
        expected = look(api)
    copy, folder = tmp_path / "old" / "cold", tmp_path / "new"
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with Driver(
        tmp_path / "output", *PIPELINE, "restore", str(copy), "--data-dir", str(folder), *HOST
    ) as driver:
        driver.kill_when(lambda: any((folder / "cold").glob(moment)))
    if not (folder / "ursula.json").exists():
        with pytest.raises(ServerExited, match="has not come to its end: run it again"):
            Server(folder, settings=FORGETFUL).start()
        restore(spark, str(copy), folder)
    else:
        assert moment == "generations/2.json", "there was much to do still"
    with Server(folder, settings=FORGETFUL) as new, client(new) as api:
        assert look(api) == expected
        assert new.stop() == 0
    assert verify(spark, str(folder / "cold")).damages == []
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
