"""A server or a store that is gone, from the start or in the middle: an error soon, and nothing half done.

When it is back, the same work is repeated, and every row is there once. For S3 see `long_outages.py`.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.faults.rounds import IS_LONG
from tests.http.wire import JSON, TEXT, content, make, post, refused
from tests.pipeline import folds
from tests.pipeline.conftest import Pipeline
from tests.pipeline.tripwire import Request, Tripwire, When
from tests.server import Server

import ursula.spark
from ursula.engine.offline.restore import RestoreRefused
from ursula.pipeline import backup, compact, export, materialize, restore, usage, verify
from ursula.spark.http_client import ServerRefused, ServerUnreachable
from ursula.spark.options import OptionError

FAILED = (AnalysisException, PythonException, StreamingQueryException)

STORES_WHEN_TOLD = {"cold.flush_interval": "1h"}

pytestmark = pytest.mark.timeout(600)
"""Retries end after a second here: a test that takes this long hangs."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Two streams of a bucket in two segments; some of both is only in memory."""
    with Server(tmp_path / "node", settings=STORES_WHEN_TOLD) as running:
        with client(running) as api:
            fill(api)
        yield running


ROWS = 12
"""How many messages the bucket has."""


def fill(api: httpx.Client) -> None:
    for name in ("bulk", "target"):
        api.put(f"/{name}").raise_for_status()
    for turn in range(3):
        for name in ("j", "t"):
            if turn == 0:
                make(api, f"/bulk/{name}", JSON)
            post(api, f"/bulk/{name}", b'[{"n":1},{"n":2}]', JSON)
        if turn < 2:
            api.post("/cluster/flush").raise_for_status()


def client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60)


def at(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "bucket": "bulk", "retryTimeout": "1"}


def store_of(server: Server) -> Path:
    return server.data_dir / "cold"


class Jobs:
    """Everything that can be done with a bucket, and whether it was done."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def read(self, endpoint: str) -> None:
        assert self._spark.read.format("ursula").options(**at(endpoint)).load().count() == ROWS

    def read_natively(self, endpoint: str) -> None:
        assert ursula.spark.read(self._spark, **at(endpoint)).count() == ROWS

    def follow(self, endpoint: str) -> None:
        """Copy the bucket into another one, with a checkpoint."""
        rows = self._spark.readStream.format("ursula").options(**at(endpoint), startingOffsets="earliest")
        target = {"endpoint": endpoint, "bucket": "target", "retryTimeout": "1", "contentType": "text/plain"}
        query = (
            rows.load()
            .selectExpr("'s' AS stream", "concat(string(value), ';') AS value")
            .writeStream.format("ursula")
            .options(**target, checkpointLocation=str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def write(self, endpoint: str) -> None:
        rows = self._spark.range(ROWS).selectExpr("'s' AS stream", "concat(id, ';') AS value")
        target = {"endpoint": endpoint, "bucket": "target", "retryTimeout": "1"}
        transaction = {"txnAppId": "outages", "txnVersion": "1"}
        rows.write.format("ursula").options(**target, **transaction).mode("append").save()

    def compact(self, endpoint: str) -> None:
        assert compact(self._spark, endpoint, retry_seconds=1).segments_after == 1

    def usage(self, endpoint: str) -> None:
        used = usage(self._spark, endpoint, retry_seconds=1, bucket="bulk").used
        assert sum(one.messages for one in used) == ROWS

    def export(self, endpoint: str) -> None:
        lake = self._folder / "lake"
        export(self._spark, str(lake), at(endpoint))
        assert self._spark.read.parquet(str(lake)).count() == ROWS

    def materialize(self, endpoint: str) -> None:
        place = self._folder / "states"
        done = materialize(self._spark, str(place), at(endpoint), folds.total, publish=True)
        states = self._spark.read.parquet(str(place / (done.path or ""))).collect()
        half = {"count": ROWS // 2, "sum": 9}
        assert {row.stream: json.loads(row.state) for row in states} == {"j": half, "t": half}
        with httpx.Client(base_url=endpoint, timeout=60) as api:
            for name in ("j", "t"):
                assert api.get(f"/bulk/{name}/snapshot", follow_redirects=True).json() == half

    def of(self, name: str) -> Callable[[str], None]:
        """A job by its name."""
        job: Callable[[str], None] = getattr(self, name)
        return job

    def nothing_is_there(self) -> bool:
        """Whether no reader could take what a job has left behind for its result."""
        lake, states = self._folder / "lake", self._folder / "states"
        entries = (json.loads(path.read_bytes()) for path in (states / "_ursula").rglob("*.json"))
        return not any(lake.glob("date=*")) and all(entry["done"] is None for entry in entries)


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Jobs:
    return Jobs(spark, tmp_path)


def check_target(server: Server, name: str) -> None:
    """Check that every row was written once."""
    if name in ("follow", "write"):
        with client(server) as api:
            found = content(api, "/target/s").split(b";")[:-1]
        written = [b"%d" % number for number in range(ROWS)]
        sent = [b'{"n":1}', b'{"n":2}'] * (ROWS // 2)
        assert sorted(found) == sorted(written if name == "write" else sent)


# No server


ASKING = ["read", "read_natively", "follow", "write", "compact", "usage", "export", "materialize"]


def test_no_server_at_all(jobs: Jobs) -> None:
    for name in ASKING:
        with pytest.raises((ServerUnreachable, *FAILED), match=r"(?s)no answer from .* is that its"):
            jobs.of(name)("http://127.0.0.1:9")
        assert jobs.nothing_is_there()


MIDDLES = {
    "read": Request("GET /bulk", 1, When.UNSENT),
    "follow": Request("POST /cluster/ingest", 1, When.UNANSWERED),
    "write": Request("POST /cluster/staging", 1, When.UNHEARD),
    "compact": Request("POST /cluster/replace-segments", 1, When.UNANSWERED),
    "usage": Request("POST /cluster/flush", 1, When.UNANSWERED),
    "export": Request("GET /bulk", 1, When.UNHEARD),
    "materialize": Request("PUT /bulk/[jt]/snapshot/", 2, When.UNANSWERED),
}


def kill_when_tripped(server: Server, wire: Tripwire) -> None:
    while not wire.has_tripped:
        if wire.is_over:
            return
        time.sleep(0.001)
    server.kill()
    wire.end()


@pytest.mark.parametrize("name", MIDDLES if IS_LONG else ["follow", "write", "compact"])
def test_a_server_that_goes_away_in_the_middle(jobs: Jobs, server: Server, name: str) -> None:
    job = jobs.of(name)
    with Tripwire(server.url, MIDDLES[name]) as wire:
        killing = threading.Thread(target=kill_when_tripped, args=(server, wire))
        killing.start()
        with pytest.raises((ServerUnreachable, *FAILED), match="no answer from"):
            job(wire.endpoint)
        assert wire.has_tripped
    killing.join()
    assert jobs.nothing_is_there()
    server.start()
    job(server.url)
    check_target(server, name)
    assert server.complaints() == []


@pytest.mark.parametrize("name", ["follow", "compact", "materialize"])
def test_a_request_whose_answer_is_lost_is_retried(jobs: Jobs, server: Server, name: str) -> None:
    """The connection is cut after the work and before the answer; the server continues."""
    moment = MIDDLES[name]._replace(when=When.UNHEARD)
    with Tripwire(server.url, moment, mends=True) as wire:
        jobs.of(name)(wire.endpoint)
        assert wire.has_tripped
    check_target(server, name)


# No store


@contextmanager
def away(store: Path) -> Iterator[None]:
    """The store is gone, and nothing can be stored in its place."""
    elsewhere = store.rename(store.with_name("elsewhere"))
    store.write_text("no folder")
    try:
        yield
    finally:
        store.unlink()
        elsewhere.rename(store)


def wait_for_flush(api: httpx.Client) -> None:
    give_up_at = time.monotonic() + 60
    while not api.post("/cluster/flush").is_success:
        assert time.monotonic() < give_up_at, "the store is not found again"
        time.sleep(0.1)


NOT_THERE = "Can this machine reach the store"
REFUSED = "store_unavailable, HTTP 503"
GONE = {
    "read": (PythonException, NOT_THERE),
    "read_natively": (AnalysisException, "PATH_NOT_FOUND"),
    "follow": (StreamingQueryException, NOT_THERE),
    "write": (PythonException, REFUSED),
    "compact": (ServerRefused, REFUSED),
    "usage": (ServerRefused, REFUSED),
    "export": (PythonException, NOT_THERE),
    "materialize": (AnalysisException, "PATH_NOT_FOUND"),
}


def test_no_store(jobs: Jobs, server: Server) -> None:
    with away(store_of(server)):
        for name, (kind, says) in GONE.items():
            with pytest.raises(kind, match=says):
                jobs.of(name)(server.url)
            assert jobs.nothing_is_there()
    with client(server) as api:
        wait_for_flush(api)
        for name in ("write", "follow"):
            jobs.of(name)(server.url)
            check_target(server, name)
            api.delete("/target/s").raise_for_status()
    for name in ("read", "read_natively", "usage", "export", "materialize", "compact", "read"):
        jobs.of(name)(server.url)


def test_states_that_cannot_be_published_fail_the_job(jobs: Jobs, tmp_path: Path) -> None:
    """Everything is read from memory, and only then is the store needed."""
    with Server(tmp_path / "node", settings=STORES_WHEN_TOLD) as server:
        with client(server) as api:
            api.put("/bulk").raise_for_status()
            for name in ("j", "t"):
                make(api, f"/bulk/{name}", JSON, json.dumps([{"n": 1}, {"n": 2}] * 3).encode())
        with away(store_of(server)), pytest.raises(PythonException, match=REFUSED):
            jobs.materialize(server.url)
        assert jobs.nothing_is_there()
        with client(server) as api:
            wait_for_flush(api)
        jobs.materialize(server.url)


def test_no_store_for_what_needs_no_server(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    store, copy = str(store_of(server)), str(tmp_path / "copy")
    with client(server) as api:
        wait_for_flush(api)
    with away(store_of(server)):
        with pytest.raises(RestoreRefused, match=r"is not a store of ursula.* cold\.root"):
            verify(spark, store)
        with pytest.raises(RestoreRefused, match="is not a store of ursula"):
            backup(spark, store, copy)
        with pytest.raises(RestoreRefused, match="is not a store of ursula"):
            restore(spark, store, tmp_path / "data")
        with pytest.raises(OptionError, match="there is no store at"):
            usage(spark, path=store)
    assert verify(spark, store).damages == []
    assert backup(spark, store, copy).damages == []
    assert sum(one.messages for one in usage(spark, path=copy).used) == ROWS
    restore(spark, store, tmp_path / "data")
    check_node(server, tmp_path / "data")


def check_node(server: Server, folder: Path) -> None:
    """Check that a restored node has the same bytes."""
    with Server(folder) as new, client(server) as old_api, client(new) as api:
        for name in ("j", "t"):
            assert content(api, f"/bulk/{name}") == content(old_api, f"/bulk/{name}")


class Vanishing:
    """Moves a folder away at the first progress report."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._elsewhere = store.with_name("elsewhere")

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._store.exists():
            self._store.rename(self._elsewhere)

    def come_back(self) -> None:
        assert not self._store.exists()
        self._elsewhere.rename(self._store)


def test_a_store_that_goes_away_in_the_middle(
    spark: SparkSession, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["ursula.pipeline.backup"], "TASK_OBJECTS", 1)
    store, copy, folder = tmp_path / "store", tmp_path / "copy", tmp_path / "data"
    with client(server) as api:
        wait_for_flush(api)
    backup(spark, str(store_of(server)), str(store))
    vanishing = Vanishing(store)
    checked = verify(spark, str(store), progress=vanishing)
    assert checked.damages
    vanishing.come_back()
    assert verify(spark, str(store)).damages == []
    copied = backup(spark, str(store), str(copy), progress=vanishing)
    assert {failed.problem for failed in copied.damages} == {"it is missing"}
    assert not (copy / "generations").exists(), "it is not a copy"
    vanishing.come_back()
    assert backup(spark, str(store), str(copy)).damages == []
    assert verify(spark, str(copy)).damages == []
    with pytest.raises(RestoreRefused, match="it is missing"):
        restore(spark, str(store), folder, progress=vanishing)
    assert not (folder / "ursula.json").exists()
    vanishing.come_back()
    restore(spark, str(store), folder)
    check_node(server, folder)


# A store in S3


# What happens to streams while they are followed, and rows that streams refuse


class Followed:
    """A query with a checkpoint; each run reads what came since the last run."""

    def __init__(self, spark: SparkSession, server: Server, folder: Path) -> None:
        reader = spark.readStream.format("ursula").options(**at(server.url), startingOffsets="earliest")
        self._rows = reader.load()
        self._folder = folder
        self._found: list[tuple[str, str, int, bytes]] = []

    def run(self) -> list[tuple[str, str, int, bytes]]:
        """Stream, incarnation, offset and value of all rows."""
        self._found = []
        writer = self._rows.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._folder)).start().awaitTermination()
        return self._found

    def _take(self, frame: DataFrame, number: int) -> None:
        for row in frame.orderBy("position", "index").collect():
            self._found.append((row.stream, row.incarnation, row.offset, bytes(row.value)))


def test_a_stream_that_is_deleted_and_created_again_while_it_is_followed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    query = Followed(spark, server, tmp_path)
    before = query.run()
    assert len(before) == ROWS
    old = {name: incarnation for name, incarnation, _, _ in before}
    with client(server) as api:
        post(api, "/bulk/j", b'"last words"', JSON)
        api.delete("/bulk/j").raise_for_status()
        make(api, "/bulk/j", TEXT, b"another")
        api.post("/cluster/flush").raise_for_status()
        post(api, "/bulk/j", b" one", TEXT)
    after = query.run()
    (new,) = {incarnation for _, incarnation, _, value in after if value == b"another"}
    assert new not in old.values()
    last = after.pop(0)
    assert (last[:2], last[3]) == (("j", old["j"]), b'"last words"')
    assert after == [("j", new, 0, b"another"), ("j", new, 7, b" one")]
    assert query.run() == []


def test_a_stream_that_is_trimmed_while_it_is_followed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    """Readers of the stream get 410 for trimmed messages. The bucket still has them, so nothing is lost."""
    query = Followed(spark, server, tmp_path)
    assert len(query.run()) == ROWS
    with client(server) as api:
        post(api, "/bulk/j", b"[1,2]", JSON)
        api.post("/cluster/flush").raise_for_status()
        post(api, "/bulk/j", b"[3]", JSON)
        tail = api.head("/bulk/j").headers["stream-next-offset"]
        assert api.put(f"/bulk/j/snapshot/{tail}", headers=TEXT, content=b"6").status_code == 204
        post(api, "/bulk/j", b"[4]", JSON)
        refused(api.get("/bulk/j", params={"offset": f"{0:020d}"}), 410, "offset_trimmed")
    assert [value for _, _, _, value in query.run()] == [b"1", b"2", b"3", b"4"]


def test_a_row_that_is_not_json_is_refused_alone(
    spark: SparkSession, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("docs", '{"n":1}'), ("docs", '{"n":'), ("docs", '{"n":2}')]
    frame = spark.createDataFrame(rows, "stream string, value string").coalesce(1)
    target = {"endpoint": server.url, "bucket": "target", "contentType": "application/json"}
    with pytest.raises(FAILED, match=r"row 1 of .* was refused"):
        frame.write.format("ursula").options(**target).mode("append").save()
    frame.write.format("ursula").options(**target, onRefused="drop").mode("append").save()
    with client(server) as api:
        assert json.loads(content(api, "/target/docs")) == [{"n": 1}, {"n": 1}, {"n": 2}]


def test_a_bucket_that_does_not_exist(jobs: Jobs, server: Server) -> None:
    with client(server) as api:
        for name in ("j", "t"):
            api.delete(f"/bulk/{name}").raise_for_status()
        api.delete("/bulk").raise_for_status()
        api.delete("/target").raise_for_status()
    for name in ("read", "read_natively", "follow", "write", "export", "materialize"):
        with pytest.raises((ServerRefused, *FAILED), match=r"there is no bucket '(bulk|target)'"):
            jobs.of(name)(server.url)
        assert jobs.nothing_is_there()


# The command


def test_a_task_that_fails_is_reported_in_one_line(
    pipeline: Pipeline, server: Server, tmp_path: Path
) -> None:
    with away(store_of(server)):
        done = pipeline("export", "bulk", str(tmp_path / "lake"), "--endpoint", server.url)
    assert done.exit_code == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ursula: a task failed: FileNotFoundError: segments/g0/")
    assert NOT_THERE in last
