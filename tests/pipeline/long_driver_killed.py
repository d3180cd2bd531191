"""Drivers that are killed in the middle of writes and of all jobs. `make faults` runs this file, by name."""

import json
import os
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cold.test_restore import client
from tests.conftest import StartServer
from tests.http.surface import feed
from tests.http.wire import BINARY, JSON, content, make, post
from tests.pipeline import folds, killed_programs
from tests.pipeline.driver_process import Driver
from tests.pipeline.test_driver_killed import HOST, PIPELINE, Events, api, killed, messages, program, server
from tests.pipeline.tripwire import Request, When
from tests.server import Server

from ursula.pipeline import compact, export, materialize, verify

__all__ = ["api", "server"]

pytestmark = pytest.mark.timeout(1800)


# A write


WRITE_MOMENTS = [
    Request("POST /cluster/staging", 2, When.UNANSWERED),
    Request("POST /cluster/ingest", 1, When.UNANSWERED),
    Request("POST /cluster/ingest", 1, When.UNHEARD),
    Request("POST /cluster/ingest", 1, When.UNSENT),
]


def test_a_write_that_was_killed_and_is_made_again_with_other_partitions_and_order_writes_each_row_once(
    spark: SparkSession, server: Server, api: httpx.Client, tmp_path: Path
) -> None:
    api.put("/numbers").raise_for_status()
    once = [(f"s{number % 10}", b"%d" % number) for number in range(killed_programs.ROWS)]
    for version, moment in enumerate(WRITE_MOMENTS):
        asked = program("write", bucket="numbers", version=version, partitions=3, by="id", size=2000)
        killed(tmp_path, server, moment, *asked)
        killed_programs.write(spark, server.url, "numbers", version, 5, "value", 2000)
        assert sorted(messages(api, "numbers")) == sorted(once * (version + 1))
        killed_programs.write(spark, server.url, "numbers", version, 2, "id", 2000)
        assert len(messages(api, "numbers")) == len(once) * (version + 1), "it was done"


# Jobs


COMPACT_MOMENTS = [
    Request("POST /cluster/replace-segments", 2, When.UNHEARD),
    Request("POST /cluster/replace-segments", 1, When.UNSENT),
    Request("POST /cluster/replace-segments", 3, When.UNANSWERED),
]


@pytest.mark.parametrize("moment", COMPACT_MOMENTS)
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
        if moment.when is When.UNHEARD:
            assert count() == segments - moment.number
        done = compact(spark, server.url, segment_bytes=1 << 20)
        assert done.overtaken == []
        assert count() == done.segments_after == segments - 4
        assert seen() == before
        assert compact(spark, server.url, segment_bytes=1 << 20).runs == 0
        assert verify(spark, str(server.data_dir / "cold")).damages == []
        assert seen() == before
        assert server.complaints() == []


MATERIALIZE_MOMENTS = [
    Request("PUT /chats-[^ ]*/snapshot/", 3, When.UNHEARD),
    Request("PUT /chats-[^ ]*/snapshot/", 1, When.UNSENT),
    Request("PUT /chats-[^ ]*/snapshot/", 6, When.UNHEARD),
]


@pytest.mark.parametrize("number", range(len(MATERIALIZE_MOMENTS)))
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
    asked = (*PIPELINE, "materialize", bucket, "tests.pipeline.folds:total", str(target), "--publish")
    killed(tmp_path, server, MATERIALIZE_MOMENTS[number], *asked, "--trim", "--endpoint", "ENDPOINT", *HOST)
    done = materialize(spark, str(target), options, folds.total, publish=True, trim=True)
    assert (done.after, done.states, done.changed, done.partial) == (first.position, 6, 6, 0)
    expected = {"count": 150, "sum": 3 * sum(range(50))}
    states = spark.read.parquet(str(target / (done.path or ""))).collect()
    assert {row.stream: json.loads(row.state) for row in states} == dict.fromkeys(names, expected)
    for name in names:
        assert api.get(f"/{bucket}/{name}/snapshot", follow_redirects=True).json() == expected


EXPORT_MOMENTS = ["_ursula/staging/*/*/*.parquet", "_ursula/exports/*/*2.json"]
"""When there is a file, and when the export has committed, under the second number."""


@pytest.mark.parametrize("moment", EXPORT_MOMENTS)
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
