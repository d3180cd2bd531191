"""Bodies over 1 MiB: stored before they are logged, and read like all others wherever they lie."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
from tests.conftest import StartServer
from tests.http.events import Events, parse_data
from tests.http.surface import MEBIBYTE, blob_files, feed, frames, make_bucket, position_of
from tests.http.test_bootstrap import parts_of
from tests.http.wire import BINARY, CLOSED, JSON, content, make, offset, post, producer, refused
from tests.scrape import scrape
from tests.server import Server
from tests.waiting import wait_for

ARROW = {"accept": "application/vnd.apache.arrow.stream"}
SMALL_LOG = 512 * 1024


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


def values(count: int, size: int) -> list[bytes]:
    """JSON messages of about this size."""
    return [b'{ "n":%d,"pad":"%b"}' % (number, b"x" * size) for number in range(count)]


def array(messages: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(messages)


@pytest.fixture(scope="module")
def lone(start_server: StartServer) -> Server:
    """A server that is flushed only when a test says so."""
    return start_server(cold__flush_interval="1h", cold__flush_size="256MiB")


@pytest.fixture
def near(lone: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lone.url, timeout=60) as client:
        yield client


def flush(api: httpx.Client) -> None:
    assert api.post("/cluster/flush").status_code == 200


def log_bytes(api: httpx.Client) -> float:
    """How many bytes all entries of the log have."""
    return scrape(api).value("ursula_log_size_bytes", group="0")


# Reading


class Written(NamedTuple):
    """A stream with its messages, each of which came as a body or a part of one."""

    path: str
    headers: dict[str, str]
    messages: list[bytes]
    closed: bool = False


def write_all(api: httpx.Client, bucket: str) -> list[Written]:
    """Large bodies in every kind of write, among small ones."""
    first, second, third = noise(2 * MEBIBYTE + 1), noise(MEBIBYTE + 1), noise(3 * MEBIBYTE)
    binary = Written(f"{bucket}/binary", BINARY, [first, b"small", second, third], closed=True)
    assert make(api, binary.path, body=first).headers["stream-next-offset"] == offset(len(first))
    post(api, binary.path, b"small")
    told = post(api, binary.path, second, BINARY | producer(0), status=200)
    assert (told.headers["producer-epoch"], told.headers["producer-seq"]) == ("0", "0")
    again = post(api, binary.path, second, BINARY | producer(0), status=204)
    assert again.headers["stream-next-offset"] == told.headers["stream-next-offset"]
    told = post(api, binary.path, third, BINARY | CLOSED | producer(1), status=200)
    assert told.headers["stream-closed"] == "true"

    many, few = values(1200, 1000), values(2, 700_000)
    records = Written(f"{bucket}/json", JSON, [*many, b'"small"', *few])
    made = make(api, records.path, JSON, array(many))
    assert (made.headers["stream-record-start"], made.headers["stream-record-next"]) == ("0", "1200")
    post(api, records.path, b'"small"', JSON)
    told = post(api, records.path, array(few), JSON)
    assert (told.headers["stream-record-start"], told.headers["stream-record-next"]) == ("1201", "1203")

    pieces = [noise(700_000), b"x", noise(800_000)]
    batch = Written(f"{bucket}/batch", BINARY, pieces)
    make(api, batch.path)
    answer = api.post(f"{batch.path}/append-batch", headers=BINARY, content=frames(*pieces))
    assert [item["stream_next_offset"] for item in answer.json()] == [
        offset(end) for end in (700_000, 700_001, 1_500_001)
    ]
    arrays = values(2, 600_000)
    mixed = Written(f"{bucket}/mixed", JSON, [*arrays, b"1", b"2"])
    make(api, mixed.path, JSON)
    answer = api.post(
        f"{mixed.path}/append-batch", headers=JSON, content=frames(array(arrays), b"[1,2]", b"{not json")
    )
    assert [item["status"] for item in answer.json()] == [204, 204, 400]
    assert [item.get("stream_record_next") for item in answer.json()] == [2, 4, None]
    return [binary, records, batch, mixed]


def pages(api: httpx.Client, stream: Written, at: str = "-1", **query: str) -> list[bytes]:
    found = []
    while True:
        answer = api.get(stream.path, params={"offset": at, **query})
        assert answer.status_code == 200, answer.text
        found.append(answer.content)
        at = answer.headers["stream-next-offset"]
        if "stream-up-to-date" in answer.headers:
            return found


def together(stream: Written, pieces: list[bytes]) -> bytes:
    if stream.headers is BINARY:
        return b"".join(pieces)
    return b",".join(piece[1:-1] for piece in pieces)


def everything(stream: Written) -> bytes:
    return (b"" if stream.headers is BINARY else b",").join(stream.messages)


def check(server: Server, api: httpx.Client, bucket: str, streams: list[Written]) -> None:
    """Every way to read finds every byte."""
    for stream in streams:
        check_reads(api, stream)
        check_events(server, stream)
        assert [part.body for part in parts_of(api.get(f"{stream.path}/bootstrap"))] == [
            b"",
            *stream.messages,
        ]
        if stream.headers is JSON:
            check_records(api, stream)
    check_feed(server, api, bucket, streams)


def check_reads(api: httpx.Client, stream: Written) -> None:
    assert together(stream, pages(api, stream)) == everything(stream)
    assert together(stream, pages(api, stream, max_bytes="16777216")) == everything(stream)
    tail = sum(map(len, stream.messages))
    last = str(tail - len(stream.messages[-1]))
    polled = api.get(stream.path, params={"offset": last, "live": "long-poll", "max_bytes": "16777216"})
    assert together(stream, [polled.content]) == stream.messages[-1]
    assert ("stream-closed" in polled.headers) == stream.closed
    if stream.headers is BINARY:
        for start in (1, len(stream.messages[0]) - 5, tail - 7):
            answer = api.get(stream.path, params={"offset": str(start), "max_bytes": "1000"})
            assert answer.content == everything(stream)[start : start + 1000]
    else:
        assert together(stream, pages(api, stream, max_bytes="30000")) == everything(stream)
        inside = api.get(stream.path, params={"offset": "3"})
        refused(inside, 400, "invalid_offset")


def check_events(server: Server, stream: Written) -> None:
    pieces: list[bytes] = []
    at, tail = "-1", sum(map(len, stream.messages))
    while at == "-1" or int(at) < tail:
        with Events(server, stream.path, at) as events:
            while (at == "-1" or int(at) < tail) and (event := events.next()):
                if event.startswith(b"event: data\n"):
                    data = parse_data(event)
                    pieces.append(base64.b64decode(data) if stream.headers is BINARY else data)
                    at = events.control()["streamNextOffset"]
    assert together(stream, pieces) == everything(stream)


def check_records(api: httpx.Client, stream: Written) -> None:
    lines, record = b"", 0
    while record < len(stream.messages):
        answer = api.get(stream.path, params={"record": str(record)})
        assert answer.status_code == 200, answer.text
        lines += answer.content
        record = int(answer.headers["stream-record-next"])
    assert lines == b"".join(message + b"\n" for message in stream.messages)
    one = api.get(stream.path, params={"tail_records": "1"})
    assert one.content == stream.messages[-1] + b"\n"


def check_feed(server: Server, api: httpx.Client, bucket: str, streams: list[Written]) -> None:
    names = {stream.path.rpartition("/")[2]: stream for stream in streams}
    found: dict[str, list[bytes]] = {name: [] for name in names}
    for line in feed(api, bucket):
        if line["kind"] == "append":
            found[line["stream"]].append(data_of(line))
    for name, stream in names.items():
        assert found[name] == [compact(stream, message) for message in stream.messages]
    table = pa.ipc.open_stream(api.get(bucket, params={"offset": "-1"}, headers=ARROW).content).read_all()
    binary = [row["payload"] for row in table.to_pylist() if row["kind"] == "append"]
    assert binary[0] == streams[0].messages[0]
    with Events(server, bucket) as events:
        while not (event := events.next()).startswith(b"event: data\n"):
            pass
    rows = [json.loads(line) for line in parse_data(event).split(b"\n") if line]
    appended = [row for row in rows if row["kind"] == "append"]
    assert data_of(appended[0]) == streams[0].messages[0]


def data_of(line: dict[str, Any]) -> bytes:
    if "value" in line:
        return json.dumps(line["value"]).encode()
    return base64.b64decode(line["value_base64"])


def compact(stream: Written, message: bytes) -> bytes:
    return message if stream.headers is BINARY else json.dumps(json.loads(message)).encode()


def test_a_large_body_is_read_like_any_other_wherever_it_lies(lone: Server) -> None:
    with httpx.Client(base_url=lone.url, timeout=60) as api:
        bucket = make_bucket(api)
        streams = write_all(api, bucket)
        assert len(blob_files(lone, bucket)) == 7
        check(lone, api, bucket, streams)
    lone.kill()
    lone.start()
    with httpx.Client(base_url=lone.url, timeout=60) as api:
        check(lone, api, bucket, streams)
        flush(api)
        check(lone, api, bucket, streams)
    lone.kill()
    lone.start()
    with httpx.Client(base_url=lone.url, timeout=60) as api:
        check(lone, api, bucket, streams)
        for blob in blob_files(lone, bucket):
            blob.unlink()
        check(lone, api, bucket, streams)
        assert lone.complaints() == [], "the segment has the bytes too"


def test_a_fork_reads_through_a_large_body(near: httpx.Client) -> None:
    bucket = make_bucket(near)
    body = noise(2 * MEBIBYTE)
    make(near, f"{bucket}/source", body=body)
    headers = BINARY | {"stream-forked-from": f"{bucket}/source", "stream-fork-offset": "0"}
    made = make(near, f"{bucket}/fork", headers | {"stream-fork-sub-offset": "1500000"}, body)
    assert made.headers["stream-next-offset"] == offset(1_500_000 + len(body))
    stream = Written(f"{bucket}/fork", BINARY, [])
    for _ in range(2):
        assert together(stream, pages(near, stream)) == body[:1_500_000] + body
        flush(near)


# Writing


@pytest.mark.one_node("measures the memory of one process")
def test_neither_log_nor_memory_holds_a_large_body(start_server: StartServer) -> None:
    server = start_server(cold__max_hot_bytes="1MiB", cold__flush_interval="1h", cold__flush_size="1GiB")
    body = noise(8 * MEBIBYTE)
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = make_bucket(api)
        make(api, f"{bucket}/s")
        before = log_bytes(api)
        for _ in range(20):
            post(api, f"{bucket}/s", body)
        assert log_bytes(api) - before < SMALL_LOG
        held = server.rss_bytes
        for _ in range(20):
            post(api, f"{bucket}/s", body)
        assert server.rss_bytes < held + 24 * MEBIBYTE, "what was written is not held"
        assert int(api.head(f"{bucket}/s").headers["stream-next-offset"]) == 40 * len(body)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"content-type": "text/plain"}, 409, "content_type_mismatch"),
        ({"stream-seq": "0"}, 409, "stream_seq_conflict"),
        ({"if-match": '"x"'}, 412, "precondition_failed"),
        ({"stream-record-match": "7"}, 412, "precondition_failed"),
        (producer(5), 409, "producer_seq_conflict"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_what_is_refused_is_not_stored(
    lone: Server, near: httpx.Client, change: dict[str, str], status: int, code: str
) -> None:
    bucket = make_bucket(near)
    make(near, f"{bucket}/s", BINARY | {"stream-seq": "1"}, b"first")
    position = position_of(near, bucket)
    answer = near.post(f"{bucket}/s", headers=BINARY | change, content=noise(2 * MEBIBYTE))
    refused(answer, status, code)
    assert blob_files(lone, bucket) == []
    assert position_of(near, bucket) == position, "nothing was logged"
    assert content(near, f"{bucket}/s") == b"first"


def test_what_has_no_place_to_go_is_not_stored(lone: Server, near: httpx.Client) -> None:
    bucket = make_bucket(near)
    body = noise(2 * MEBIBYTE)
    refused(near.post(f"{bucket}/none", headers=BINARY, content=body), 404, "stream_not_found")
    refused(near.put(f"{bucket}-none/s", headers=BINARY, content=body), 404, "bucket_not_found")
    make(near, f"{bucket}/s", body=b"first")
    assert near.put(f"{bucket}/s", headers=BINARY, content=body).status_code == 200, "it is there already"
    refused(near.put(f"{bucket}/s", headers=JSON, content=b"1"), 409, "stream_exists")
    post(near, f"{bucket}/s", b"", CLOSED)
    refused(near.post(f"{bucket}/s", headers=BINARY, content=body), 409, "stream_closed")
    make(near, f"{bucket}/json", JSON)
    bad = b"[" + b'"x",' * 400_000
    refused(near.post(f"{bucket}/json", headers=JSON, content=bad), 400, "invalid_json")
    assert blob_files(lone, bucket) == []


def test_of_the_same_request_at_once_one_body_is_kept(lone: Server, near: httpx.Client) -> None:
    bucket = make_bucket(near)
    make(near, f"{bucket}/s")
    body = noise(4 * MEBIBYTE)
    statuses: list[int] = []

    def send() -> None:
        answer = httpx.post(f"{lone.url}{bucket}/s", headers=BINARY | producer(0), content=body, timeout=60)
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 204, 204, 204, 204, 204]
    assert int(near.head(f"{bucket}/s").headers["stream-next-offset"]) == len(body)
    give_up_at = time.monotonic() + 60
    while len(blob_files(lone, bucket)) != 1:
        assert time.monotonic() < give_up_at, "what was stored for nothing is still there"


def test_a_store_that_does_not_take_it_is_told_and_nothing_is_changed(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h")
    body = noise(2 * MEBIBYTE)
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = make_bucket(api)
        make(api, f"{bucket}/s", body=b"first")
        position = position_of(api, bucket)
        blobs = server.data_dir / "cold" / "blobs"
        blobs.write_bytes(b"in the way")
        for answer in (
            api.post(f"{bucket}/s", headers=BINARY | producer(0), content=body),
            api.put(f"{bucket}/new", headers=BINARY, content=body),
            api.post(f"{bucket}/s/append-batch", headers=BINARY, content=frames(body, b"x")),
        ):
            refused(answer, 503, "store_unavailable")
            assert answer.headers["retry-after"] == "1"
        assert position_of(api, bucket) == position
        assert content(api, f"{bucket}/s") == b"first"
        post(api, f"{bucket}/s", b"small ones go on")
        assert not any(path.is_file() for path in (server.data_dir / "cold" / "tmp").rglob("*"))
        blobs.unlink()
        assert api.post(f"{bucket}/s", headers=BINARY | producer(0), content=body).status_code == 200


def spoil(blob: Path, damage: str) -> None:
    """Damage a body in the store."""
    data = bytearray(blob.read_bytes())
    data[MEBIBYTE + 7] ^= 32
    if damage == "lost":
        blob.unlink()
    else:
        blob.write_bytes(data if damage == "flipped" else data[:-1])


def refused_flush(api: httpx.Client) -> str:
    """Why a flush cannot be done."""
    answer = api.post("/cluster/flush")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("damage", ["lost", "short", "flipped"])
def test_a_body_that_is_damaged_before_it_is_flushed_is_named(start_server: StartServer, damage: str) -> None:
    server = start_server(cold__cache_bytes="0", cold__flush_interval="1h")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = make_bucket(api)
        make(api, f"{bucket}/s", body=b"small")
        post(api, f"{bucket}/s", noise(2 * MEBIBYTE))
        (blob,) = blob_files(server, bucket)
        kept = blob.read_bytes()
        spoil(blob, damage)
        paths = [f"{bucket}/s?max_bytes=16777216", f"{bucket}?offset=-1", f"{bucket}/s/bootstrap"]
        if damage != "short":
            paths.append(f"{bucket}/s?offset={5 + MEBIBYTE}&max_bytes=1000")
        for path in paths:
            answer = api.get(path)
            assert answer.status_code == 500, answer
            error = answer.json()["error"]
            assert error["code"] == "object_damaged"
            assert blob.name in error["message"]
        assert api.get(f"{bucket}/s", params={"max_bytes": "5"}).content == b"small"
        make(api, f"{bucket}/other", body=b"unaffected")
        assert content(api, f"{bucket}/other") == b"unaffected"
        assert blob.name in refused_flush(api)
        assert list((server.data_dir / "cold").rglob("*.parquet")) == []
        assert wait_for(lambda: blob.name in str(api.get("/cluster/hot-cold-stats").json()["flush_problem"]))
        assert scrape(api).value("ursula_cold_flush_failures_total", group="0") >= 1
        (told,) = [entry for entry in server.complaints() if "cannot be flushed" in entry["message"]]
        assert blob.name in told["message"]
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(kept)
        flush(api)
        assert api.get(f"{bucket}/s", params={"offset": "5", "max_bytes": "16777216"}).content == kept


@pytest.mark.one_node("a cluster's log is not in memory")
def test_a_large_body_in_memory_only_lies_in_a_folder_that_goes(start_server: StartServer) -> None:
    server = start_server("--log", "memory")
    with httpx.Client(base_url=server.url, timeout=60) as api:
        bucket = make_bucket(api)
        body = noise(2 * MEBIBYTE)
        make(api, f"{bucket}/s", body=body)
        answer = api.get(f"{bucket}/s", params={"max_bytes": "16777216"})
        assert answer.content == body
    assert server.stop() == 0
    assert not Path(server.data_dir / "cold").exists()
