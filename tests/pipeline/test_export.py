"""`export`: the files have every message once, however often it runs and whatever is killed."""

import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.http.wire import JSON, TEXT, make, post
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.pipeline import export
from ursula.pipeline.export import merge_schemas
from ursula.pipeline.job_lease import RunningJob
from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import OptionError, S3Options


@pytest.fixture
def options(server: Server, api: httpx.Client, path: str) -> dict[str, str]:
    """A bucket that is partly in the store and partly in memory."""
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    make(api, f"/{name}/j", JSON, b'[{"n":1},{"n":2,"who":{"name":"x"}}]')
    api.post("/cluster/flush").raise_for_status()
    make(api, f"/{name}/t", TEXT, b"text")
    return {"endpoint": server.url, "bucket": name, "retryTimeout": "20"}


def values(spark: SparkSession, target: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(target)).select("value").collect())


def test_each_message_is_exported_once(
    spark: SparkSession, api: httpx.Client, options: dict[str, str], tmp_path: Path
) -> None:
    target, bucket = tmp_path / "lake", options["bucket"]
    would = export(spark, str(target), options, dry_run=True)
    assert (would.after, would.rows) == (-1, 0)
    assert not target.exists()
    first = export(spark, str(target), options)
    assert (first.after, first.position, first.rows) == (-1, would.position, 3)
    assert values(spark, target) == [b"text", b'{"n":1}', b'{"n":2,"who":{"name":"x"}}']
    table = spark.read.parquet(str(target))
    assert {"stream", "position", "appended_at", "value", "date", "bucket"} <= set(table.columns)
    assert {row.bucket for row in table.select("bucket").collect()} == {bucket}
    today = datetime.now(UTC).date()
    assert all(abs((row.date - today).days) <= 1 for row in table.select("date").collect())
    assert export(spark, str(target), options).rows == 0
    post(api, f"/{bucket}/t", b" more", TEXT)
    second = export(spark, str(target), options)
    assert (second.after, second.rows) == (first.position, 1)
    assert len(values(spark, target)) == 4
    assert not list((target / "_ursula").rglob("*.parquet"))
    assert {path.name.partition("=")[0] for path in target.iterdir()} == {"_ursula", "date"}


def test_fields_of_json_are_columns_and_new_ones_are_added(
    spark: SparkSession, api: httpx.Client, options: dict[str, str], tmp_path: Path
) -> None:
    target, bucket = tmp_path / "lake", options["bucket"]
    first = export(spark, str(target), options, expand_json=True)
    assert first.columns == ["n", "who"]
    post(api, f"/{bucket}/j", b'[{"n":"seven","more":true,"who":{"age":3}},[1]]', JSON)
    second = export(spark, str(target), options, expand_json=True)
    assert second.columns == ["n", "who", "more"]
    table = spark.read.option("mergeSchema", "true").parquet(str(target)).where("stream = 'j'")
    rows = table.orderBy("position", "offset").select("json.n", "json.more", "json.who.*").collect()
    assert [(row.n, row.more, row.name, row.age) for row in rows] == [
        (1, None, None, None),
        (2, None, "x", None),
        (None, True, None, 3),
        (None, None, None, None),
    ]


def test_a_job_that_was_killed_is_finished_by_the_next(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    target = tmp_path / "lake"
    with monkeypatch.context() as patched:
        patched.setattr(RunningJob, "commit", killed)
        with pytest.raises(Killed):
            export(spark, str(target), options)
    assert not list(target.glob("date=*"))
    with monkeypatch.context() as patched:
        patched.setattr(ExecutorStore, "move", killed)
        with pytest.raises(Killed):
            export(spark, str(target), options)
    done = export(spark, str(target), options)
    assert done.rows == 0, "the next one moves what was committed"
    assert len(values(spark, target)) == 3


def test_what_cannot_be_exported_says_so(
    spark: SparkSession, options: dict[str, str], start_server: Any, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    with pytest.raises(OptionError, match="leave out the offsets"):
        export(spark, str(target), options | {"startingOffsets": "7"})
    export(spark, str(target), options)
    other: Server = start_server()
    httpx.put(f"{other.url}/{options['bucket']}").raise_for_status()
    state = max((target / "_ursula" / "exports" / options["bucket"]).iterdir())
    document = json.loads(state.read_text())
    state.write_text(json.dumps(document | {"done": document["done"] | {"position": 0}}))
    with pytest.raises(OptionError, match="another cluster"):
        export(spark, str(target), options | {"endpoint": other.url})
    state.write_text(json.dumps(document | {"format": 99}))
    with pytest.raises(OptionError, match="newer version"):
        export(spark, str(target), options)


def test_the_command(pipeline: Pipeline, options: dict[str, str], tmp_path: Path) -> None:
    more = ["--endpoint", options["endpoint"], "--json", "--expand-json"]
    done = pipeline("export", options["bucket"], str(tmp_path / "lake"), *more)
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["columns"]) == (3, ["n", "who"])


def test_schemas_grow_and_keep_their_types() -> None:
    def struct(text: str) -> StructType:
        found = StructType.fromDDL(text)
        assert isinstance(found, StructType)
        return found

    known = struct("a bigint, s struct<x: string>")
    found = struct("_corrupt_record string, a string, b double, s struct<x: int, y: int>, t string")
    assert merge_schemas(known, found) == struct("a bigint, s struct<x: string, y: int>, b double, t string")


def test_objects_move_once(tmp_path: Path) -> None:
    store = ExecutorStore(str(tmp_path), S3Options())
    store.put(BytesIO(b"1"), "a/b")
    store.move("a/b", "c/d")
    store.move("a/b", "c/d")
    assert store.read("c/d") == b"1"
