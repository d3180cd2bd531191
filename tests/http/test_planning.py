"""The plan of a bucket: segments and hot steps that together are what its feed has, once."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from tests.conftest import StartServer
from tests.http.wire import BINARY, make, offset, post, refused
from tests.server import Server

MESSAGE = b"x" * 60_000


@pytest.fixture
def bucket(api: httpx.Client, path: str) -> str:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    return name


def plan(api: httpx.Client, bucket: str, after: int | None = None) -> dict[str, Any]:
    more = {} if after is None else {"after": offset(after)}
    answer = api.get("/cluster/plan", params={"bucket": bucket, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def feed_positions(api: httpx.Client, bucket: str, after: str = "-1") -> list[int]:
    """The positions of all rows after one."""
    positions: list[int] = []
    while True:
        answer = api.get(f"/{bucket}", params={"offset": after})
        assert answer.status_code == 200, answer.text
        positions += [int(json.loads(line)["position"]) for line in answer.text.splitlines()]
        after = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return positions


def stored_positions(plan: dict[str, Any], bucket: str) -> list[int]:
    """The positions of the bucket's rows in the segments of a plan."""
    positions: list[int] = []
    for segment in plan["segments"]:
        columns = pq.read_table(Path(plan["root"]) / segment["path"], columns=["bucket", "position"])
        assert columns.num_rows == segment["rows"]
        rows = columns.to_pylist()
        positions += [row["position"] for row in rows if row["bucket"] == bucket]
    return sorted(positions)


def test_segments_and_steps_are_the_feed(server: Server, api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a")
    make(api, f"/{bucket}/b")
    for _ in range(3):
        post(api, f"/{bucket}/a", MESSAGE)
    api.post("/cluster/flush").raise_for_status()
    for _ in range(40):
        post(api, f"/{bucket}/b", MESSAGE)
    found = plan(api, bucket)
    positions = feed_positions(api, bucket)
    status = api.get("/cluster/status").json()
    assert (found["cluster"], found["generation"]) == (status["cluster"], status["generation"])
    assert found["position"] >= positions[-1]
    stored = stored_positions(found, bucket)
    hot = [position for position in positions if position not in stored]
    assert stored == positions[: len(stored)]
    steps = found["hot"]
    assert sum(step["rows"] for step in steps) == len(hot)
    if steps:
        assert (steps[0]["first"], steps[-1]["last"]) >= (stored[-1], positions[-1])
        assert all(one["last"] == two["first"] for one, two in pairwise(steps))
        assert max(step["bytes"] for step in steps) < 2 << 20
        assert len(steps) >= sum(step["bytes"] for step in steps) >> 20
    for step in steps:
        within = [position for position in hot if step["first"] < position <= step["last"]]
        assert len(within) == step["rows"]


def test_a_plan_begins_after_a_position(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a")
    api.post("/cluster/flush").raise_for_status()
    first = plan(api, bucket)
    post(api, f"/{bucket}/a", b"1")
    api.post("/cluster/flush").raise_for_status()
    second = plan(api, bucket, first["position"])
    assert first["segments"]
    assert not {one["path"] for one in first["segments"]} & {one["path"] for one in second["segments"]}
    assert second["position"] > first["position"]
    third = plan(api, bucket, second["position"])
    assert third["segments"] == third["hot"] == []


def test_what_happens_in_other_buckets_is_no_reason_to_read(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a", BINARY, b"1")
    before = plan(api, bucket)
    api.put(f"/{bucket}-other").raise_for_status()
    make(api, f"/{bucket}-other/a", BINARY, b"2")
    api.post("/cluster/flush").raise_for_status()
    after = plan(api, bucket, before["position"])
    assert after["segments"] == after["hot"] == []
    assert after["position"] > before["position"]
    post(api, f"/{bucket}/a", b"3")
    again = plan(api, bucket, after["position"])
    assert again["hot"] or again["segments"]
    assert again["after"] == after["position"]


def test_an_idle_bucket_stays_idle_after_a_restart(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        for name in ("idle", "empty", "busy"):
            api.put(f"/{name}").raise_for_status()
        make(api, "/idle/a", BINARY, b"1")
        api.post("/cluster/flush").raise_for_status()
        api.put("/unused").raise_for_status()
    server.restart()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        before = {name: plan(api, name)["position"] for name in ("idle", "empty", "unused")}
        make(api, "/busy/a", BINARY, b"2")
        api.post("/cluster/flush").raise_for_status()
        for name, position in before.items():
            after = plan(api, name, position)
            assert after["segments"] == after["hot"] == []
        post(api, "/idle/a", b"3")
        after = plan(api, "idle", before["idle"])
        assert after["segments"] or after["hot"]


def test_a_plan_begins_where_the_bucket_does(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a", BINARY, b"1")
    old = plan(api, bucket)
    assert api.delete(f"/{bucket}/a").status_code == 204
    assert api.delete(f"/{bucket}").status_code == 204
    api.put(f"/{bucket}").raise_for_status()
    make(api, f"/{bucket}/b", BINARY, b"2")
    api.post("/cluster/flush").raise_for_status()
    new = plan(api, bucket)
    assert new["after"] > old["position"] > old["after"]
    after = [position for position in stored_positions(new, bucket) if position > new["after"]]
    assert after == feed_positions(api, bucket)


def test_what_was_just_acknowledged_is_in_it(api: httpx.Client, bucket: str) -> None:
    make(api, f"/{bucket}/a")
    for number in range(20):
        before = plan(api, bucket)["position"]
        post(api, f"/{bucket}/a", b"%d" % number, BINARY)
        after = plan(api, bucket, before)
        assert after["position"] > before
        assert after["hot"] or after["segments"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "invalid_parameter"),
        ("bucket=", 400, "invalid_parameter"),
        ("bucket=nobody-made-it", 404, "bucket_not_found"),
        ("bucket=B&after=x", 400, "invalid_offset"),
        ("bucket=B&after=-1", 400, "invalid_parameter"),
        ("bucket=B&after=now", 400, "invalid_parameter"),
        ("bucket=B&after=00000000000000000000", 410, "position_trimmed"),
        ("bucket=B&after=00999999999999999999", 400, "offset_beyond_tail"),
    ],
)
def test_bad_requests(api: httpx.Client, bucket: str, query: str, status: int, code: str) -> None:
    refused(api.get(f"/cluster/plan?{query.replace('B', bucket)}"), status, code)


def test_only_get_is_possible(api: httpx.Client) -> None:
    refused(api.post("/cluster/plan"), 405, "method_not_allowed")


def test_the_first_step_can_be_read_from_the_feed(api: httpx.Client, path: str) -> None:
    bucket = f"{path.rpartition('/')[2]}-new"
    api.put(f"/{bucket}").raise_for_status()
    make(api, f"/{bucket}/a", BINARY, b"first")
    found = plan(api, bucket)
    positions = [int(row["position"]) for row in rows_of_steps(api, bucket, found)]
    assert stored_positions(found, bucket) + positions == feed_positions(api, bucket)
    assert positions or found["segments"]


def rows_of_steps(api: httpx.Client, bucket: str, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """What the feed has of the hot steps of a plan."""
    rows = []
    for step in plan["hot"]:
        query = {"offset": offset(step["first"]), "until": offset(step["last"])}
        answer = api.get(f"/{bucket}", params=query)
        assert answer.status_code == 200, answer.text
        rows += [json.loads(line) for line in answer.text.splitlines()]
    return rows
