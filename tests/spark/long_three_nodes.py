"""From one bucket of three nodes through Spark into another, while a node is killed: every row once."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cluster.spread_server import SpreadServer
from tests.http.staged import ingest, stage
from tests.http.wire import content

STREAMS, ROUNDS, PER_ROUND = 5, 6, 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpreadServer]:
    """Three nodes; each request goes to the next one that runs."""
    with SpreadServer(tmp_path_factory.mktemp("nodes") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def api(server: SpreadServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def fill(api: httpx.Client, bucket: str) -> list[bytes]:
    """Write rows to several segments and to memory; returns them all."""
    api.put(f"/{bucket}").raise_for_status()
    api.put(f"/{bucket}-out").raise_for_status()
    for turn in range(ROUNDS):
        numbers = range(turn * PER_ROUND, (turn + 1) * PER_ROUND)
        rows = [(f"s{number % STREAMS}", b"%06d;" % number) for number in numbers]
        assert ingest(api, bucket, turn, [stage(api, bucket, rows)]).status_code == 200
        if turn < ROUNDS - 2:
            api.post("/cluster/flush").raise_for_status()
    return [b"%06d" % number for number in range(ROUNDS * PER_ROUND)]


def test_every_row_arrives_once_though_a_node_is_killed(
    spark: SparkSession, server: SpreadServer, api: httpx.Client, tmp_path: Path
) -> None:
    expected = fill(api, "events")
    leader = api.get("/cluster/status").json()["leader_id"]
    victim = next(node for node in server.nodes if node.number == leader)
    killed: list[int] = []

    def kill_after_the_first_batch(frame: object, batch: int) -> None:
        if batch == 1:
            killed.append(victim.kill())

    read = {"endpoint": server.url, "bucket": "events"}
    source = spark.readStream.format("ursula").options(**read, startingOffsets="earliest")
    rows = source.option("maxMessagesPerTrigger", PER_ROUND).load().select("stream", "value")
    checkpoints = {name: str(tmp_path / name) for name in ("sink", "killer")}
    sink = rows.writeStream.format("ursula").options(endpoint=server.url, bucket="events-out")
    writing = sink.option("checkpointLocation", checkpoints["sink"]).trigger(availableNow=True).start()
    killer = rows.writeStream.foreachBatch(kill_after_the_first_batch)
    killing = killer.option("checkpointLocation", checkpoints["killer"]).trigger(availableNow=True).start()
    for query in (writing, killing):
        query.awaitTermination()
        assert query.exception() is None
    assert killed
    for bucket in ("events", "events-out"):
        found = b"".join(content(api, f"/{bucket}/s{number}") for number in range(STREAMS))
        assert sorted(found.split(b";")[:-1]) == expected
    table = spark.read.format("ursula").options(endpoint=server.url, bucket="events-out").load()
    assert sorted(bytes(row.value).rstrip(b";") for row in table.collect()) == expected
    victim.start(ready=False)
    victim.wait_until_in_cluster()
