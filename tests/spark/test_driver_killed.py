"""A driver that is killed in the middle of its work, with its Java: what is done again is done once."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cold.test_restore import FORGETFUL, client, look
from tests.cold.test_restore import fill as fill_with_every_kind
from tests.conftest import StartServer
from tests.faults.rounds import IS_LONG
from tests.http.staged import ingest, stage
from tests.http.surface import feed
from tests.http.wire import BINARY, JSON, content, make, post
from tests.server import Server, ServerExited
from tests.spark import driven, folds
from tests.spark.driver import Driver
from tests.spark.tripwire import Request, Tripwire, When

from ursula.pipeline import compact, export, materialize, restore, verify

PIPELINE = ("-m", "ursula", "pipeline")
HOST = ("--master", "local[2]")
STREAMS, TURN_ROWS = 7, 200

pytestmark = pytest.mark.timeout(1800 if IS_LONG else 600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that stores when it is told to, so that moments are the same each time."""
    folder = tmp_path_factory.mktemp("server") / "data"
    with Server(folder, settings={"cold.flush_interval": "1h"}) as running:
        yield running
        assert running.complaints() == []


@pytest.fixture(scope="module")
def api(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as one:
        yield one


def some(moments: list[Any]) -> list[Any]:
    """The first moment of a list; all of them where there is time."""
    return moments if IS_LONG else moments[:1]


def killed(folder: Path, server: Server, moment: Request, *arguments: str) -> None:
    """Kill a driver at the moment of a request; what is written as ENDPOINT is its server."""
    with Tripwire(server.url, moment) as wire:
        told = [argument.replace("ENDPOINT", wire.endpoint) for argument in arguments]
        with Driver(folder / "output", *told) as driver:
            driver.kill_when(lambda: wire.has_tripped)


def program(name: str, **arguments: Any) -> tuple[str, ...]:
    return (driven.__file__, name, json.dumps({"endpoint": "ENDPOINT", **arguments}))


def messages(api: httpx.Client, bucket: str) -> list[tuple[str, bytes]]:
    """What all streams of a bucket have, each message by itself."""
    names = [listed["stream_id"] for listed in api.get(f"/{bucket}/streams").json()["streams"]]
    return [
        (name, value.strip())
        for name in names
        for value in content(api, f"/{bucket}/{name}").split(b";")[:-1]
    ]


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
        """So many segments more, and as much in memory as one has."""
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
    Request("POST /cluster/ingest", 3, When.UNTOLD),
    Request("POST /cluster/ingest", 2, When.UNANSWERED),
    Request("GET /cluster/plan", 7, When.UNSENT),
    Request("POST /cluster/ingest", 2, When.UNSENT),
    Request("GET /cluster/plan", 5, When.UNTOLD),
    Request("POST /cluster/staging", 3, When.UNTOLD),
]


def test_a_query_whose_driver_is_killed_again_and_again_writes_each_row_once(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path
) -> None:
    events, checkpoint = Events(api, "events"), str(tmp_path / "checkpoint")
    arrived = 0
    for moment in some(QUERY_MOMENTS):
        events.grow(5)
        asked = program("follow", bucket="events", checkpoint=checkpoint, partitions=2)
        killed(tmp_path, server, moment, *asked)
        assert arrived < len(messages(api, "events-out")) < len(events.written), "it was in the middle"
        arrived = len(messages(api, "events-out"))
    api.post("/cluster/flush").raise_for_status()
    driven.follow(spark, server.url, "events", checkpoint, 3)
    assert sorted(messages(api, "events-out")) == sorted(events.written)
    events.grow(0)
    driven.follow(spark, server.url, "events", checkpoint, 1)
    assert sorted(messages(api, "events-out")) == sorted(events.written)


# A write


WRITE_MOMENTS = [
    Request("POST /cluster/staging", 2, When.UNANSWERED),
    Request("POST /cluster/ingest", 1, When.UNANSWERED),
    Request("POST /cluster/ingest", 1, When.UNTOLD),
    Request("POST /cluster/ingest", 1, When.UNSENT),
]


def test_a_write_that_was_killed_and_is_made_again_with_other_partitions_and_order_writes_each_row_once(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path
) -> None:
    api.put("/numbers").raise_for_status()
    once = [(f"s{number % 10}", b"%d" % number) for number in range(driven.ROWS)]
    for version, moment in enumerate(some(WRITE_MOMENTS)):
        asked = program("write", bucket="numbers", version=version, partitions=3, by="id", size=2000)
        killed(tmp_path, server, moment, *asked)
        driven.write(spark, server.url, "numbers", version, 5, "value", 2000)
        assert sorted(messages(api, "numbers")) == sorted(once * (version + 1))
        driven.write(spark, server.url, "numbers", version, 2, "id", 2000)
        assert len(messages(api, "numbers")) == len(once) * (version + 1), "it was done"


# Jobs


COMPACT_MOMENTS = [
    Request("POST /cluster/replace-segments", 2, When.UNTOLD),
    Request("POST /cluster/replace-segments", 1, When.UNSENT),
    Request("POST /cluster/replace-segments", 3, When.UNANSWERED),
]


@pytest.mark.parametrize("moment", some(COMPACT_MOMENTS))
def test_a_compaction_that_was_killed_is_finished_by_the_next(
    spark: SparkSession, start_server: StartServer, tmp_path: Path, moment: Request
) -> None:
    server = start_server(cold__flush_interval="1h")
    with client(server) as api:
        api.put("/bulk").raise_for_status()
        make(api, "/bulk/a", BINARY)
        make(api, "/bulk/b", BINARY)
        for _ in range(9):
            post(api, "/bulk/a", os.urandom(300_000))
            post(api, "/bulk/b", os.urandom(100_000))
            api.post("/cluster/flush").raise_for_status()

        def seen() -> list[object]:
            plain = [content(api, f"/bulk/{name}") for name in ("a", "b")]
            table = spark.read.format("ursula").options(endpoint=server.url, bucket="bulk").load()
            rows = table.orderBy("position", "index").select("stream", "offset", "value").collect()
            return [plain, feed(api, "/bulk"), [tuple(row) for row in rows]]

        def count() -> int:
            return len(api.get("/cluster/plan", params={"bucket": "bulk"}).json()["segments"])

        before, segments = seen(), count()
        asked = (*PIPELINE, "compact", "--endpoint", "ENDPOINT", "--segment-size", "1", *HOST)
        killed(tmp_path, server, moment, *asked)
        assert seen() == before
        if moment.when is When.UNTOLD:
            assert count() == segments - moment.number
        done = compact(spark, server.url, segment_bytes=1 << 20)
        assert done.overtaken == []
        assert count() == done.segments_after == segments - 4
        assert seen() == before
        assert compact(spark, server.url, segment_bytes=1 << 20).runs == 0
        assert verify(spark, str(server.data_dir / "cold")).damages == []
        assert seen() == before
        assert server.complaints() == []


RESTORE_MOMENTS = ["segments/*/*.parquet", "generations/2.json", "generations/1.json", "manifests/*/*.json"]


@pytest.mark.parametrize("moment", some(RESTORE_MOMENTS))
def test_a_restore_that_was_killed_is_made_good_by_the_next(
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


MATERIALIZE_MOMENTS = [
    Request("PUT /chats-[^ ]*/snapshot/", 3, When.UNTOLD),
    Request("PUT /chats-[^ ]*/snapshot/", 1, When.UNSENT),
    Request("PUT /chats-[^ ]*/snapshot/", 6, When.UNTOLD),
]


@pytest.mark.parametrize("number", range(len(some(MATERIALIZE_MOMENTS))))
def test_a_materialization_that_was_killed_folds_each_message_once(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path, number: int
) -> None:
    bucket, target = f"chats-{number}", tmp_path / "states"
    options = {"endpoint": server.url, "bucket": bucket}
    names = [f"room-{one}" for one in range(6)]
    api.put(f"/{bucket}").raise_for_status()
    for name in names:
        make(api, f"/{bucket}/{name}", JSON, json.dumps([{"n": n} for n in range(50)]).encode())
    first = materialize(spark, str(target), options, folds.total, publish=True)
    for is_stored in (True, False):
        for name in names:
            post(api, f"/{bucket}/{name}", json.dumps([{"n": n} for n in range(50)]).encode(), JSON)
        if is_stored:
            api.post("/cluster/flush").raise_for_status()
    asked = (*PIPELINE, "materialize", bucket, "tests.spark.folds:total", str(target), "--publish")
    killed(tmp_path, server, MATERIALIZE_MOMENTS[number], *asked, "--trim", "--endpoint", "ENDPOINT", *HOST)
    done = materialize(spark, str(target), options, folds.total, publish=True, trim=True)
    assert (done.after, done.states, done.changed, done.partial) == (first.position, 6, 6, 0)
    expected = {"count": 150, "sum": 3 * sum(range(50))}
    states = spark.read.parquet(str(target / (done.path or ""))).collect()
    assert {row.stream: json.loads(row.state) for row in states} == dict.fromkeys(names, expected)
    for name in names:
        assert api.get(f"/{bucket}/{name}/snapshot", follow_redirects=True).json() == expected


EXPORT_MOMENTS = ["_ursula/staging/*/*/*.parquet", "_ursula/exports/*/*2.json"]
"""When there is a file, and when the export has entered, under the second number, that it is done."""


@pytest.mark.parametrize("moment", some(EXPORT_MOMENTS))
def test_an_export_that_was_killed_has_each_row_once_after_the_next(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path, moment: str
) -> None:
    bucket, lake = f"lake-{EXPORT_MOMENTS.index(moment)}", tmp_path / "lake"
    events = Events(api, bucket)
    events.grow(2)
    asked = (*PIPELINE, "export", bucket, str(lake), "--endpoint", server.url, *HOST)
    with Driver(tmp_path / "output", *asked) as driver:
        driver.kill_when(lambda: any(lake.glob(moment)))
    events.grow(1)
    for _ in range(2):
        export(spark, str(lake), {"endpoint": server.url, "bucket": bucket})
        table = spark.read.parquet(str(lake)).select("stream", "value").collect()
        assert sorted((row.stream, bytes(row.value)[:-1]) for row in table) == sorted(events.written)
