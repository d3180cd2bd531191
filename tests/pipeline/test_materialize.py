"""`materialize`: folds streams into states, each message once, starting from the last state."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from tests.http.wire import JSON, TEXT, content, make, post
from tests.pipeline import folds
from tests.server import Server

from ursula.pipeline import materialize
from ursula.spark.options import OptionError
from ursula.spark.tasks.fold import APPEND, ENDED, UNDELETED, FoldFailed, fold_streams


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    for stream in ("a", "b"):
        make(api, f"/{name}/{stream}", JSON, b'[{"n":1},{"n":2}]')
    api.post("/cluster/flush").raise_for_status()
    post(api, f"/{name}/a", b'{"n":10}', JSON)
    return name


@pytest.fixture
def options(server: Server, bucket: str) -> dict[str, str]:
    return {"endpoint": server.url, "bucket": bucket, "retryTimeout": "20"}


def states(spark: SparkSession, target: Path, path: str | None) -> dict[str, Any]:
    assert path is not None
    rows = spark.read.parquet(str(target / path)).collect()
    assert len({row.stream for row in rows}) == len(rows)
    return {row.stream: None if row.state is None else json.loads(row.state) for row in rows}


def test_the_next_job_continues_from_the_states(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str], tmp_path: Path
) -> None:
    would = materialize(spark, str(tmp_path), options, folds.total, dry_run=True)
    assert (would.after, would.states) == (-1, 0)
    first = materialize(spark, str(tmp_path), options, folds.total)
    assert (first.states, first.changed, first.position) == (2, 2, would.position)
    expected = {"a": {"count": 3, "sum": 13}, "b": {"count": 2, "sum": 3}}
    assert states(spark, tmp_path, first.path) == expected
    post(api, f"/{bucket}/b", b'[{"n":5},{"n":6}]', JSON)
    make(api, f"/{bucket}/c", JSON, b'[{"n":7}]')
    api.delete(f"/{bucket}/a").raise_for_status()
    second = materialize(spark, str(tmp_path), options, "tests.pipeline.folds:total")
    assert (second.after, second.states, second.changed) == (first.position, 2, 2)
    expected = {"b": {"count": 4, "sum": 14}, "c": {"count": 1, "sum": 7}}
    assert states(spark, tmp_path, second.path) == expected
    assert not list((tmp_path / (first.path or "")).glob("*.parquet")), "those of before are removed"
    third = materialize(spark, str(tmp_path), options, folds.total)
    assert (third.states, third.changed) == (2, 0)
    assert states(spark, tmp_path, third.path) == expected


def test_states_are_published_as_snapshots(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str], tmp_path: Path
) -> None:
    done = materialize(spark, str(tmp_path), options, folds.total, publish=True)
    assert done.published == {"published": 2}
    shown = api.get(f"/{bucket}/a/snapshot", follow_redirects=True)
    assert shown.json() == {"count": 3, "sum": 13}
    assert shown.headers["content-type"] == "application/json"
    assert len(json.loads(content(api, f"/{bucket}/a"))) == 3, "nothing is trimmed"
    post(api, f"/{bucket}/a", b'{"n":100}', JSON)
    done = materialize(spark, str(tmp_path), options, folds.total, publish=True, trim=True)
    assert done.published == {"published": 1}, "only what has changed"
    assert api.get(f"/{bucket}/a/snapshot", follow_redirects=True).json() == {"count": 4, "sum": 113}
    assert int(api.head(f"/{bucket}/a").headers["stream-record-first"]) == 4
    post(api, f"/{bucket}/a", b'{"n":1}', JSON)
    done = materialize(spark, str(tmp_path), options, folds.total)
    assert states(spark, tmp_path, done.path)["a"] == {"count": 5, "sum": 114}


def test_a_stream_without_its_beginning_has_no_state(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str], tmp_path: Path
) -> None:
    forked = {"stream-forked-from": f"/{bucket}/a"}
    make(api, f"/{bucket}/fork", JSON | forked)
    for number in (1, 2):
        post(api, f"/{bucket}/fork", b'{"n":1}', JSON)
        done = materialize(spark, str(tmp_path), options, folds.total, publish=True)
        assert (done.states, done.partial) == (2, 1), number
        assert states(spark, tmp_path, done.path)["fork"] is None
    assert api.get(f"/{bucket}/fork/snapshot").status_code == 404


def test_bytes_and_a_fold_that_fails(
    spark: SparkSession, api: httpx.Client, bucket: str, options: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(PythonException, match=r"the fold failed at the stream"):
        materialize(spark, str(tmp_path), options, folds.broken)
    assert materialize(spark, str(tmp_path), options, folds.broken, dry_run=True).after == -1
    make(api, f"/{bucket}/t", TEXT, b"one ")
    post(api, f"/{bucket}/t", b"two", TEXT)
    done = materialize(spark, str(tmp_path), options | {"streams": '["t"]'}, folds.joined)
    row = spark.read.parquet(str(tmp_path / (done.path or ""))).collect()[0]
    assert (bytes(row.state), row.content_type, row.offset) == (b"one two", "application/octet-stream", 7)


def rows(stream: str, first: int, count: int, size: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "stream": stream,
            "incarnation": "i",
            "step": APPEND,
            "is_json": False,
            "offset": number * size,
            "next_offset": (number + 1) * size,
            "position": number,
            "value": b"x" * size,
        }
        for number in range(first, first + count)
    ]


def test_no_more_than_a_chunk_is_in_memory() -> None:
    chunks: list[int] = []

    def fold(state: int | None, messages: list[bytes]) -> int:
        chunks.append(len(messages))
        return (state or 0) + len(messages)

    batches = [pa.RecordBatch.from_pylist(rows("s", first, 700)) for first in range(0, 3500, 700)]
    found = pa.Table.from_batches(fold_streams(fold, None, iter(batches))).to_pylist()
    assert [(row["stream"], row["state"]) for row in found] == [("s", b"3500")]
    assert max(chunks) == 1000
    chunks.clear()
    large = [pa.RecordBatch.from_pylist(rows("s", 0, 10, 400_000))]
    list(fold_streams(fold, None, large))
    assert chunks == [3, 3, 3, 1]


def test_a_gap_leaves_no_state_and_an_end_no_stream() -> None:
    def event(stream: str, position: int, step: int) -> dict[str, Any]:
        return rows(stream, position, 1)[0] | {"step": step, "value": None}

    given = [
        *rows("gap", 0, 2),
        *rows("gap", 3, 2),
        *rows("gone", 0, 1),
        event("gone", 1, ENDED),
        *rows("late", 1, 1),
        *rows("returned", 0, 1),
        event("returned", 1, ENDED),
        event("returned", 1, UNDELETED),
        *rows("returned", 1, 1),
    ]
    for size in (1, 2, len(given)):
        batches = [pa.RecordBatch.from_pylist(given[at : at + size]) for at in range(0, len(given), size)]
        found = pa.Table.from_batches(fold_streams(folds.joined, None, batches)).to_pylist()
        assert [(row["stream"], row["state"], row["changed"]) for row in found] == [
            ("gap", None, False),
            ("late", None, False),
            ("returned", b"xx", True),
        ], size


def test_an_integer_may_have_any_number_of_digits() -> None:
    long = "9" * 5000
    row = rows("s", 0, 1)[0] | {"value": long.encode(), "is_json": True}
    batches = [pa.RecordBatch.from_pylist([row])]
    found = pa.Table.from_batches(fold_streams(lambda _, messages: messages, None, batches)).to_pylist()
    assert found[0]["state"] == f"[{long}]".encode()


def test_a_state_must_be_json_or_bytes() -> None:
    batches = [pa.RecordBatch.from_pylist(rows("s", 0, 1))]
    with pytest.raises(FoldFailed, match="neither bytes nor JSON"):
        list(fold_streams(lambda state, messages: {1, 2}, None, batches))


@pytest.mark.parametrize(
    ("fold", "more", "says"),
    [
        ("nonsense", {}, "must be module:function"),
        ("no_module_here:fold", {}, "there is no fold"),
        ("tests.pipeline.folds:nobody", {}, "there is no fold"),
        ("tests.pipeline.folds:total", {"trim": True}, "give publish too"),
    ],
)
def test_impossible_jobs_say_so(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, fold: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        materialize(spark, str(tmp_path), options, fold, **more)
    with pytest.raises(OptionError, match="leave out the offsets"):
        materialize(spark, str(tmp_path), options | {"endingOffsets": "7"}, folds.total)
    without = {"path": str(tmp_path), "bucket": "x"}
    with pytest.raises(OptionError, match="give endpoint"):
        materialize(spark, str(tmp_path), without, folds.total, publish=True)


def test_the_command_as_a_process_of_its_own(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "chat.py").write_text("def fold(state, messages):\n    return (state or 0) + len(messages)\n")
    command = [sys.executable, "-m", "ursula", "pipeline", "materialize", options["bucket"], "chat:fold"]
    more = [str(tmp_path / "states"), "--endpoint", options["endpoint"], "--master", "local[1]", "--json"]
    done = subprocess.run([*command, *more], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(done.stdout)["states"] == 2
