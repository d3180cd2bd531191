"""The feed as Arrow: the columns of a segment, with the same rows as the lines."""

import json

import httpx
import pyarrow as pa
import pytest
from tests.http.wire import JSON, make
from tests.server import Server

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def bucket(server: Server, api: httpx.Client, path: str) -> str:
    name = path.rpartition("/")[2]
    api.put(f"/{name}").raise_for_status()
    make(api, f"/{name}/json", JSON, b'[{"a":1},2]')
    producer = {"Producer-Id": "p", "Producer-Epoch": "3", "Producer-Seq": "0"}
    make(api, f"/{name}/bytes", {"Content-Type": "application/octet-stream"}, b"\x00\xff")
    posted = api.post(
        f"/{name}/bytes", content=b"more", headers={"Content-Type": "application/octet-stream", **producer}
    )
    assert posted.status_code == 200
    attributes = api.put(f"/{name}/json/attrs", json={"title": "x"})
    assert attributes.status_code == 204
    return name


def test_arrow_has_the_same_rows_as_the_lines(api: httpx.Client, bucket: str) -> None:
    lines = [json.loads(line) for line in api.get(f"/{bucket}?offset=-1").text.splitlines()]
    answer = api.get(f"/{bucket}?offset=-1", headers=ARROW)
    assert answer.headers["content-type"] == ARROW["Accept"]
    table = pa.ipc.open_stream(answer.content).read_all()
    rows = table.to_pylist()
    assert [row["kind"] for row in rows] == [line["kind"] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        for name in ("stream", "incarnation", "content_type", "index"):
            assert row[name] == line[name]
        for name in ("position", "offset", "next_offset"):
            assert row[name] == int(line[name])
        assert row["record"] == line.get("record")
        assert row["appended_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ") == line["at"]
        assert row["bucket"] == bucket
        assert (None if row["event"] is None else json.loads(row["event"])) == line.get("event")
        producer = line.get("producer") or {}
        assert (row["producer_id"], row["producer_epoch"], row["producer_seq"]) == (
            producer.get("id"),
            producer.get("epoch"),
            producer.get("seq"),
        )
    payloads = [row["payload"] for row in rows if row["kind"] == "append"]
    assert payloads == [b'{"a":1}', b"2", b"\x00\xff", b"more"]


def test_arrow_pages_end_where_the_lines_do(api: httpx.Client, bucket: str) -> None:
    offset, positions = "-1", []
    while True:
        answer = api.get(f"/{bucket}", params={"offset": offset, "max_bytes": 1}, headers=ARROW)
        positions += pa.ipc.open_stream(answer.content).read_all()["position"].to_pylist()
        offset = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            break
    lines = api.get(f"/{bucket}?offset=-1").text.splitlines()
    assert positions == [int(json.loads(line)["position"]) for line in lines]
