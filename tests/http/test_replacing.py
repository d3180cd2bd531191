"""Segments that a job put together take the place of those that they were made from."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.wire import BINARY, content, make, post, refused
from tests.server import Server

from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import S3Options
from ursula.spark.tasks.merge_segments import MergedSegment, merge_segments


@pytest.fixture
def bulk(start_server: Any) -> Server:
    """A server with three segments of one stream, and something that is in memory only."""
    server: Server = start_server(cold__flush_interval="1h")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        api.put("/bulk").raise_for_status()
        make(api, "/bulk/a", BINARY)
        for number in range(3):
            post(api, "/bulk/a", b"%d" % number * 1000)
            api.post("/cluster/flush").raise_for_status()
        post(api, "/bulk/a", b"hot")
    return server


def segments(api: httpx.Client) -> list[dict[str, Any]]:
    answer = api.get("/cluster/plan", params={"bucket": "bulk"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["segments"]
    return found


def store(server: Server) -> ExecutorStore:
    return ExecutorStore(str(server.data_dir / "cold"), S3Options())


def joined(server: Server, old: list[dict[str, Any]]) -> MergedSegment:
    return merge_segments(store(server), 0, old[0]["first"], old[-1]["last"], [one["path"] for one in old])


def ask(api: httpx.Client, old: list[dict[str, Any]], new: str) -> httpx.Response:
    body = {"group": 0, "old": [one["path"] for one in old], "new": [new]}
    return api.post("/cluster/replace-segments", json=body)


def test_readers_do_not_notice(bulk: Server) -> None:
    with httpx.Client(base_url=bulk.url, timeout=60) as api:
        before, whole = segments(api), content(api, "/bulk/a")
        feed = api.get("/bulk", params={"offset": "-1"}).text
        made = joined(bulk, before)
        done = ask(api, before, made.path)
        assert done.status_code == 200
        again = ask(api, before, made.path)
        assert (again.status_code, again.json()) == (200, done.json()), "the answer may have been lost"
        first, *later = [one["path"] for one in segments(api)]
        assert first == made.path
        assert not {one["path"] for one in before} & set(later), "what is new is what was in memory, flushed"
        assert segments(api)[0]["rows"] == sum(one["rows"] for one in before)
        assert content(api, "/bulk/a") == whole
        assert api.get("/bulk", params={"offset": "-1"}).text == feed
        refused(ask(api, before, joined(bulk, before).path), 409, "segments_replaced")
        api.post("/cluster/flush").raise_for_status()
    assert bulk.stop() == 0
    bulk.start()
    with httpx.Client(base_url=bulk.url, timeout=60) as api:
        assert segments(api)[0]["path"] == made.path
        assert content(api, "/bulk/a") == whole


def test_only_neighbours_become_one(bulk: Server) -> None:
    with httpx.Client(base_url=bulk.url, timeout=60) as api:
        one, two, three = segments(api)
        for old in ([one, three], [two, one], [one, {"path": "segments/g0/other"}]):
            refused(ask(api, old, "segments/g0/x.parquet"), 409, "segments_replaced")
        made = joined(bulk, [two, three])
        assert ask(api, [two, three], made.path).status_code == 200
        assert len(segments(api)) == 2


def test_what_does_not_stand_for_them_is_refused(bulk: Server) -> None:
    with httpx.Client(base_url=bulk.url, timeout=60) as api:
        old = segments(api)
        good = joined(bulk, old)
        path = Path(store(bulk).root) / good.path
        fewer = joined(bulk, old[:2])
        renamed = path.with_name(f"{old[0]['first']:020d}-{old[-1]['last']:020d}-{fewer.path[-34:]}")
        renamed.write_bytes((Path(store(bulk).root) / fewer.path).read_bytes())
        for key in ("segments/g0/x.parquet", good.path + "x", fewer.path, f"segments/g0/{renamed.name}"):
            refused(ask(api, old, key), 400, "invalid_segment")
        refused(ask(api, old, good.path[:-10] + "000.parquet"[-10:]), 404, "object_not_found")
        whole = path.read_bytes()
        for at in (200, len(whole) - 30):
            damaged = bytearray(whole)
            damaged[at] ^= 1
            path.write_bytes(damaged)
            refused(ask(api, old, good.path), 400, "invalid_segment")
        path.write_bytes(whole[:100])
        refused(ask(api, old, good.path), 400, "invalid_segment")
        base = {"group": 0, "old": [old[0]["path"]], "new": [good.path]}
        wrong: list[dict[str, Any]] = [{"group": 7}, {"old": []}, {"new": []}, {"new": [good.path] * 2}]
        for change in wrong:
            refused(api.post("/cluster/replace-segments", json=base | change), 400, "invalid_parameter")
        refused(api.post("/cluster/replace-segments", content=b"{}"), 400, "invalid_json")
        assert segments(api) == old
        path.write_bytes(whole)
        assert ask(api, old, good.path).status_code == 200
