"""Spark follows a bucket: every message once, whatever happens to the query and to the files."""

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from tests.cold.test_restore import command
from tests.conftest import StartServer
from tests.http.wire import BINARY, TEXT, make, post
from tests.server import Server

from ursula.engine.node import Node
from ursula.spark.http_client import ServerRefused
from ursula.spark.options import OptionError
from ursula.spark.reads.options import parse_shared_options, parse_stream_options
from ursula.spark.reads.stream_reader import BucketStreamReader, DataLost, WrongCheckpoint
from ursula.spark.reads.view import take_view
from ursula.spark.source import UrsulaSource

Offset = dict[str, Any]


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    """A bucket with one empty stream."""
    name = f"followed-{path.rpartition('/')[2]}"
    api.put(f"/{name}").raise_for_status()
    make(api, f"/{name}/a", TEXT)
    return name


def client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60)


def flush(api: httpx.Client) -> None:
    api.post("/cluster/flush").raise_for_status()


def append(api: httpx.Client, bucket: str, *texts: str, stream: str = "a") -> None:
    for text in texts:
        post(api, f"/{bucket}/{stream}", text.encode(), TEXT)


def remake(api: httpx.Client, bucket: str) -> None:
    """Delete a bucket with one stream, and create it again with a message."""
    assert api.delete(f"/{bucket}/a").status_code == 204
    assert api.delete(f"/{bucket}").status_code == 204
    api.put(f"/{bucket}").raise_for_status()
    make(api, f"/{bucket}/a", TEXT, b"new")


def wait_for_merge(api: httpx.Client, bucket: str, count: int) -> None:
    """Wait until there are fewer segments than flushes."""
    give_up_at = time.monotonic() + 60
    while len(api.get("/cluster/plan", params={"bucket": bucket}).json()["segments"]) >= count:
        assert time.monotonic() < give_up_at, "nothing is merged"
        time.sleep(0.05)


def joined(batches: list[list[str]]) -> list[str]:
    return [text for batch in batches for text in batch]


# The reader, as Spark calls it


class Follower:
    """A query without Spark: a reader, and the last committed offset."""

    def __init__(self, bucket: str, offset: Offset | None = None, **options: str) -> None:
        self.source = UrsulaSource({"bucket": bucket, "retryTimeout": "20", **options})
        self.offset = offset
        self.restart()

    def restart(self) -> None:
        self.reader: BucketStreamReader = self.source.streamReader(self.source.schema())
        if self.offset is None:
            self.offset = self.reader.initialOffset()

    def batch(self, limit: ReadLimit | None = None) -> list[str] | None:
        """The messages of the next batch; None if there is none."""
        assert self.offset is not None
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        found = self.read(self.offset, end)
        self.offset = end
        return found

    def batches(self) -> list[list[str]]:
        """All remaining batches."""
        found = []
        while (batch := self.batch()) is not None:
            found.append(batch)
        return found

    def read(self, start: Offset, end: Offset) -> list[str]:
        """The messages between two offsets, in order."""
        batches = [rows for part in self.reader.partitions(start, end) for rows in self.reader.read(part)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        rows.sort(key=lambda row: (row["position"], row["index"]))
        return [row["value"].decode() for row in rows]


def follow(server: Server, bucket: str, offset: Offset | None = None, **options: str) -> Follower:
    return Follower(bucket, offset, endpoint=server.url, **options)


def test_a_stream_begins_with_what_comes_next(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "before")
    follower = follow(server, bucket)
    assert follower.batch() is None
    append(api, bucket, "after")
    assert follower.batch() == ["after"]
    assert follower.batch() is None


def test_a_stream_may_begin_anywhere(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "one", "two")
    everything = follow(server, bucket, startingOffsets="earliest")
    assert everything.batches() == [["one", "two"]]
    append(api, bucket, "three")
    assert everything.offset is not None
    position = str(everything.offset["position"])
    assert follow(server, bucket, startingOffsets=position).batches() == [["three"]]
    assert follow(server, bucket, startingTimestamp="0").batches() == [["one", "two", "three"]]
    assert follow(server, bucket, startingOffsets="latest", startingTimestamp="0").batches() == []
    with pytest.raises(ServerRefused, match="offset_beyond_tail"):
        follow(server, bucket, startingOffsets="999999999999999999")


def test_an_offset_is_one_position(server: Server, api: httpx.Client, bucket: str) -> None:
    status = api.get("/cluster/status").json()
    whose = {"cluster": status["cluster"], "generation": status["generation"], "bucket": bucket}
    follower = follow(server, bucket, startingOffsets="earliest")
    assert follower.offset == {**whose, "position": -1}
    append(api, bucket, "one")
    follower.batch()
    position = api.get("/cluster/plan", params={"bucket": bucket}).json()["position"]
    assert follower.offset == {**whose, "position": position}
    assert follower.reader.reportLatestOffset() == follower.offset


def test_no_batch_without_something_in_the_bucket(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "one")
    follower = follow(server, bucket, startingOffsets="earliest")
    assert follower.batch() == ["one"]
    before = follower.offset
    api.put(f"/{bucket}-other").raise_for_status()
    make(api, f"/{bucket}-other/a", BINARY, b"x")
    flush(api)
    assert follower.batch() is None
    assert follower.offset == before


def test_batches_end_where_a_limit_is_reached(server: Server, api: httpx.Client, bucket: str) -> None:
    for number in range(4):
        append(api, bucket, f"{number}-0", f"{number}-1")
        flush(api)
    expected = [f"{number}-{one}" for number in range(4) for one in range(2)]
    segments = api.get("/cluster/plan", params={"bucket": bucket}).json()["segments"]
    for goal in ("maxMessagesPerTrigger", "maxBytesPerTrigger"):
        follower = follow(server, bucket, None, startingOffsets="earliest", **{goal: "1"})
        ends, found = [], []
        while (batch := follower.batch()) is not None:
            assert follower.offset is not None
            ends.append(follower.offset["position"])
            found.append(batch)
        assert joined(found) == expected
        assert len(found) >= 4, "at most one file in each"
        assert set(ends[:-1]) <= {segment["last"] for segment in segments}
    together = follow(server, bucket, startingOffsets="earliest", maxMessagesPerTrigger="1000000")
    assert together.batches() == [expected]
    ignored = follow(server, bucket, startingOffsets="earliest", maxMessagesPerTrigger="1")
    assert ignored.batch(ReadAllAvailable()) == expected


def test_hot_rows_are_divided_into_batches_too(server: Server, api: httpx.Client, bucket: str) -> None:
    texts = [str(number) * 300_000 for number in range(9)]
    append(api, bucket, *texts)
    follower = follow(server, bucket, startingOffsets="earliest", maxBytesPerTrigger="1")
    batches = follower.batches()
    assert joined(batches) == texts
    assert len(batches) > 1


def test_what_comes_after_the_target_waits(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "one")
    follower = follow(server, bucket, startingOffsets="earliest")
    follower.reader.prepareForTriggerAvailableNow()
    append(api, bucket, "two")
    flush(api)
    assert follower.batches() == [["one"]]
    follower.restart()
    assert follower.batches() == [["two"]]


def test_a_batch_is_the_same_again_whatever_the_files_are(
    server: Server, api: httpx.Client, bucket: str
) -> None:
    append(api, bucket, "one", "two")
    follower = follow(server, bucket, startingOffsets="earliest")
    start = follower.offset
    assert follower.batch() == ["one", "two"]
    end = follower.offset
    assert start is not None
    assert end is not None
    append(api, bucket, "three")
    flush(api)
    append(api, bucket, "four")
    follower.restart()
    assert follower.read(start, end) == ["one", "two"]
    assert follower.read(end, end) == []
    assert follower.batches() == [["three", "four"]]


def test_a_batch_is_the_same_again_after_its_files_were_merged(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h")
    with client(server) as api:
        api.put("/merged").raise_for_status()
        make(api, "/merged/a", TEXT)
        for number in range(5):
            append(api, "merged", str(number))
            flush(api)
        follower = follow(server, "merged", startingOffsets="earliest", maxMessagesPerTrigger="2")
        start = follower.offset
        first = follower.batch()
        end = follower.offset
        assert start is not None
        assert end is not None
        for number in range(5, 40):
            append(api, "merged", str(number))
            flush(api)
        assert first is not None
        wait_for_merge(api, "merged", 24)
        assert follower.read(start, end) == first
        rest = joined(follower.batches())
        assert first + rest == [str(number) for number in range(40)]


def test_the_store_alone_can_be_followed(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "one")
    flush(api)
    root = api.get("/cluster/plan", params={"bucket": bucket}).json()["root"]
    follower = Follower(bucket, path=root, startingOffsets="earliest")
    assert follower.batches() == [["one"]]
    append(api, bucket, "two")
    flush(api)
    assert follower.batches() == [["two"]]
    ahead = follow(server, bucket, follower.offset)
    append(api, bucket, "three")
    assert ahead.batches() == [["three"]]
    late = Follower(bucket, ahead.offset, path=root)
    assert late.batches() == [], "the store has it only later"
    flush(api)
    append(api, bucket, "four")
    flush(api)
    assert late.batches() == [["four"]]


def test_the_store_is_read_as_the_group_that_owns_the_bucket_left_it(tmp_path: Path) -> None:
    groups = [0, 1, 2]
    (tmp_path / "live").mkdir()
    (tmp_path / "generations").mkdir()
    for generation in (1, 2):
        begun: dict[str, Any] = {
            "generation": generation,
            "cluster": "c",
            "groups": generation + 1,
            "ended": {},
        }
        (tmp_path / "generations" / f"{generation}.json").write_text(json.dumps(begun))
    for group in groups:
        live = {"cluster": "c", "generation": 2, "group": group, "position": group, "segments": []}
        (tmp_path / "live" / f"g{group}.json").write_text(json.dumps(live))
    node: Any = Node
    chosen = partial(node.group_of, SimpleNamespace(group_count=3, groups=groups))
    for bucket in ("tea", "cup", "pot", "milk"):
        options = parse_shared_options({"bucket": bucket, "path": str(tmp_path)})
        assert take_view(options, None).position == chosen(bucket)
    (tmp_path / "live" / f"g{chosen('tea')}.json").unlink()
    with pytest.raises(OptionError, match=r"the store at .* is empty so far"):
        Follower("tea", path=str(tmp_path))


# What goes wrong


def test_a_checkpoint_of_another_cluster_is_refused(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "one")
    offset = follow(server, bucket, startingOffsets="earliest").offset
    assert offset is not None
    for position in (-1, 0, 1 << 60):
        other = {**offset, "cluster": "another", "position": position}
        for accept in ("true", "false"):
            follower = follow(server, bucket, other, failOnDataLoss=accept)
            with pytest.raises(WrongCheckpoint, match="belongs to the cluster another, but this is"):
                follower.batch()
            with pytest.raises(WrongCheckpoint, match="start over with another checkpointLocation"):
                follower.read(other, {**other, "position": position + 1})


def test_a_checkpoint_of_another_bucket_is_refused(server: Server, bucket: str) -> None:
    offset = follow(server, bucket).offset
    assert offset is not None
    with pytest.raises(WrongCheckpoint, match="belongs to the bucket 'another', but the option bucket is"):
        follow(server, bucket, {**offset, "bucket": "another"}, failOnDataLoss="false").batch()
    with pytest.raises(WrongCheckpoint, match="which is not a position of a bucket"):
        follow(server, bucket, {"0": 7}).batch()


def test_a_log_that_ends_before_the_checkpoint(
    server: Server, api: httpx.Client, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(api, bucket, "one")
    offset = follow(server, bucket).offset
    assert offset is not None
    beyond = {**offset, "position": offset["position"] + 1_000_000}
    strict = follow(server, bucket, beyond)
    with pytest.raises(
        DataLost, match=r"the log ends at position \d+, before the checkpoint at \d+\. To continue"
    ):
        strict.batch()
    with pytest.raises(DataLost, match="set failOnDataLoss to false; or start over"):
        strict.read(offset, beyond)
    lenient = follow(server, bucket, beyond, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == []
    assert "continuing from there, since failOnDataLoss is false" in caplog.text
    append(api, bucket, "two")
    assert lenient.batches() == [["two"]]
    append(api, bucket, "three")
    assert lenient.read(offset, beyond) == ["two", "three"]


def test_a_bucket_that_was_created_again(server: Server, api: httpx.Client, bucket: str) -> None:
    append(api, bucket, "old", "older")
    follower = follow(server, bucket, startingOffsets="earliest")
    assert follower.batch() == ["old", "older"]
    append(api, bucket, "never read")
    remake(api, bucket)
    with pytest.raises(
        DataLost, match=r"was deleted after the checkpoint, at position \d+, and created again"
    ):
        follower.batch()
    for is_stored in (False, True):
        if is_stored:
            flush(api)
        lenient = follow(server, bucket, follower.offset, failOnDataLoss="false")
        assert lenient.batches() == [["new"]]
        assert follow(server, bucket, startingOffsets="earliest").batches() == [["new"]]
    gone = follow(server, bucket)
    assert api.delete(f"/{bucket}/a").status_code == 204
    assert api.delete(f"/{bucket}").status_code == 204
    with pytest.raises(ServerRefused, match="there is no bucket"):
        gone.batch()


def test_a_restore_that_went_back_before_the_checkpoint(tmp_path: Path) -> None:
    settings = {"cold.root": str(tmp_path / "cold"), "cold.flush_interval": "1h"}
    with Server(tmp_path / "old", settings=settings) as old, client(old) as api:
        for name in ("shop", "remade"):
            api.put(f"/{name}").raise_for_status()
            make(api, f"/{name}/a", TEXT, b"kept")
        follower = follow(old, "shop", startingOffsets="earliest")
        flush(api)
        kept = follow(old, "shop").offset
        assert follower.batch() == ["kept"]
        append(api, "shop", "undone")
        assert follower.batch() == ["undone"]
        stored = Follower("shop", follower.offset, path=str(tmp_path / "cold"), failOnDataLoss="false")
        old.kill()
    command("restore", "--from", str(tmp_path / "cold"), "--data-dir", str(tmp_path / "new"))
    with Server(tmp_path / "new", settings=settings) as new, client(new) as api:
        assert follow(new, "shop", kept).batches() == []
        strict = follow(new, "shop", follower.offset)
        with pytest.raises(DataLost, match=r"a restore went back to position \d+, before the checkpoint"):
            strict.batch()
        lenient = follow(new, "shop", follower.offset, failOnDataLoss="false")
        assert joined(lenient.batches()) == []
        append(api, "shop", "since")
        assert joined(lenient.batches()) == ["since"]
        late = follow(new, "shop", follower.offset, failOnDataLoss="false")
        assert joined(late.batches()) == ["since"]
        assert follow(new, "shop", kept).batches() == [["since"]]
        flush(api)
        with pytest.raises(DataLost, match="a restore went back"):
            Follower("shop", follower.offset, path=str(tmp_path / "cold")).batch()
        assert joined(stored.batches()) == ["since"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "now"}, "startingOffsets must be earliest, latest or a position of up to"),
        ({"startingOffsets": "-1"}, "startingOffsets must be earliest, latest or a position"),
        ({"endingOffsets": "latest"}, "endingOffsets is for a batch read"),
        ({"endingTimestamp": "1"}, "endingTimestamp is for a batch read: a stream has no end"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger must be a whole number, at least 1, not '0'"),
        ({"maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger must be a whole number, at least 1"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
        ({"retryTimeout": "soon"}, "a number of seconds"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_stream_options({"bucket": "b", "path": "p", **options})


# Spark itself


class Query:
    """A query that reads a bucket into this process, with a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.folder = folder
        self.options = {"retryTimeout": "20", "startingOffsets": "earliest", **options}
        self.batches: list[list[str]] = []

    def run(self, before: Callable[[int], None] = lambda batch: None) -> None:
        """Read what there is; `before` is called before each batch."""

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.orderBy("position", "index").collect()
            before(number)
            self.batches.append([bytes(row.value).decode() for row in rows])

        reader = self.spark.readStream.format("ursula").options(**self.options)
        writer = reader.load().writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder)).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    @property
    def messages(self) -> list[str]:
        return joined(self.batches)


def test_every_message_comes_once_while_others_write(
    spark: SparkSession, server: Server, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    written: list[str] = []
    done = threading.Event()

    def write() -> None:
        with client(server) as own:
            for number in range(60):
                stream = f"s{number % 7}"
                if number < 7:
                    make(own, f"/{bucket}/{stream}", TEXT)
                append(own, bucket, str(number), stream=stream)
                written.append(str(number))
                if number % 9 == 0:
                    flush(own)
        done.set()

    query = Query(spark, tmp_path, endpoint=server.url, bucket=bucket, maxMessagesPerTrigger="5")
    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        query.run()
    writer.join()
    query.run()
    assert query.messages == written
    count = len(query.batches)
    assert count > 1
    query.run()
    assert len(query.batches) == count, "nothing happened"


class Stumble(Exception):
    pass


def test_a_batch_that_failed_is_read_again_from_other_files(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
) -> None:
    def stumble(batch: int) -> None:
        if batch == 1:
            raise Stumble

    server = start_server(cold__flush_interval="1h")
    query = Query(spark, tmp_path, endpoint=server.url, bucket="again")
    with client(server) as api:
        api.put("/again").raise_for_status()
        make(api, "/again/a", TEXT, b"zero")
        query.run(stumble)
        append(api, "again", "one", "two")
        with pytest.raises(StreamingQueryException, match="Stumble"):
            query.run(stumble)
        assert query.batches == [["zero"]]
        append(api, "again", "three")
        for _ in range(16):
            append(api, "again", "more")
            flush(api)
        wait_for_merge(api, "again", 16)
    query.run()
    assert query.batches[:2] == [["zero"], ["one", "two"]], "the same batch as before"
    assert query.messages == ["zero", "one", "two", "three", *["more"] * 16]


def test_a_query_shows_where_it_is_and_reads_chosen_columns(
    spark: SparkSession, server: Server, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    append(api, bucket, "one", "two")
    reader = spark.readStream.format("ursula").schema("value binary").option("startingOffsets", "earliest")
    frame = reader.options(endpoint=server.url, bucket=bucket).load()
    table = f"taken_{bucket.replace('-', '_')}"
    writer = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    rows = spark.table(table).collect()
    assert sorted(bytes(row.value) for row in rows) == [b"one", b"two"]
    (progress,) = [one for one in query.recentProgress if one["numInputRows"]]
    shown = json.loads(progress["sources"][0]["endOffset"].replace("'", '"'))
    assert shown["bucket"] == bucket


def test_a_failure_ends_the_query_and_is_reported(
    spark: SparkSession, server: Server, api: httpx.Client, bucket: str, tmp_path: Path
) -> None:
    append(api, bucket, "old")
    query = Query(spark, tmp_path, endpoint=server.url, bucket=bucket)
    query.run()
    remake(api, bucket)
    with pytest.raises(StreamingQueryException, match="set failOnDataLoss to false"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.messages == ["old", "new"]
    query.options["endingOffsets"] = "latest"
    with pytest.raises(Exception, match="endingOffsets is for a batch read"):
        query.run()
