"""Buckets: made, described, emptied, deleted; and never a stream without one."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.raw import Raw
from tests.http.surface import feed, frames, make_bucket, position_of
from tests.http.wire import BINARY, JSON, TEXT, content, make, post, refused
from tests.server import Server


def test_a_bucket_is_made_once(server: Server, api: httpx.Client) -> None:
    bucket = make_bucket(api)
    again = f"{bucket}-2"
    answer = api.put(again)
    assert answer.status_code == 201
    assert answer.content == b""
    assert answer.headers["location"] == f"{server.url}{again}"
    make(api, f"{again}/s", TEXT, b"x")
    refused(api.put(again), 409, "bucket_exists")
    assert content(api, f"{again}/s") == b"x"
    assert api.get(again).json() == {"bucket_id": again[1:], "streams": 1}


@pytest.mark.parametrize("name", ["abcd", "a" * 64, "----", "____", "0123", "a-b_c9"])
def test_names_within_the_pattern_are_taken(api: httpx.Client, name: str) -> None:
    assert api.put(f"/{name}").status_code == 201
    assert api.get(f"/{name}").json() == {"bucket_id": name, "streams": 0}
    assert api.delete(f"/{name}").status_code == 204


def test_a_description_counts_the_streams(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    for count in range(3):
        answer = api.get(bucket)
        assert answer.json() == {"bucket_id": bucket[1:], "streams": count}
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        make(api, f"{bucket}/s{count}")
    api.delete(f"{bucket}/s0")
    assert api.get(bucket).json()["streams"] == 2


def test_only_an_empty_bucket_is_deleted(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/a", BINARY, b"x")
    make(api, f"{bucket}/fork", {"stream-forked-from": f"{bucket}/a"})
    refused(api.delete(bucket), 409, "bucket_not_empty")
    api.delete(f"{bucket}/a")
    refused(api.delete(bucket), 409, "bucket_not_empty")
    assert content(api, f"{bucket}/fork") == b"x"
    api.delete(f"{bucket}/fork")
    answer = api.delete(bucket)
    assert (answer.status_code, answer.content) == (204, b"")
    refused(api.delete(bucket), 404, "bucket_not_found")
    refused(api.get(bucket), 404, "bucket_not_found")
    refused(api.get(f"{bucket}/streams"), 404, "bucket_not_found")
    refused(api.put(f"{bucket}/a"), 404, "bucket_not_found")


def test_a_bucket_made_again_is_new(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    old = make(api, f"{bucket}/s", TEXT, b"old").headers
    api.delete(f"{bucket}/s")
    position = position_of(api, bucket)
    api.delete(bucket)
    assert api.put(bucket).status_code == 201
    assert api.get(bucket).json()["streams"] == 0
    assert feed(api, bucket) == []
    refused(api.get(bucket, params={"offset": position}), 410, "position_trimmed")
    refused(api.get(bucket, params={"offset": "-1", "until": position}), 410, "position_trimmed")
    new = make(api, f"{bucket}/s", TEXT, b"new").headers
    assert new["stream-incarnation"] != old["stream-incarnation"]
    post(api, f"{bucket}/s", b"!", {**TEXT, "if-match": new["etag"]})
    answer = api.post(f"{bucket}/s", headers={**TEXT, "if-match": old["etag"]}, content=b"x")
    refused(answer, 412, "precondition_failed")


def test_expired_streams_do_not_keep_a_bucket(timed_server: Server, timed_api: httpx.Client) -> None:
    api = timed_api
    bucket = make_bucket(api)
    make(api, f"{bucket}/gone", {"stream-ttl": "0"})
    assert api.delete(bucket).status_code == 204
    assert api.put(bucket).status_code == 201
    make(api, f"{bucket}/soon", {"stream-ttl": "100"})
    make(api, f"{bucket}/later", {"stream-ttl": "1000"})
    refused(api.delete(bucket), 409, "bucket_not_empty")
    api.delete(f"{bucket}/later")
    refused(api.delete(bucket), 409, "bucket_not_empty")
    timed_server.pass_time(101)
    assert api.delete(bucket).status_code == 204


@pytest.fixture(scope="module")
def new_server_api(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server where nobody else has made a bucket of any name."""
    with httpx.Client(base_url=start_server().url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    "name", ["abc", "UPPER", "with.dot", "caf%C3%A9", "a%20b", "a%25b", "x" * 100, "v1", "%E2%82%AC"]
)
def test_a_bucket_made_on_the_fly_is_served_like_any_other(new_server_api: httpx.Client, name: str) -> None:
    api = new_server_api
    bucket = f"/{name}"
    refused(api.put(bucket), 400, "invalid_bucket_id")
    made = make(api, f"/v1/stream/{name}/doc", JSON, b"[1,2]")
    assert made.headers["location"].endswith(f"/v1/stream/{name}/doc")
    text = httpx.URL(f"http://x{bucket}").path[1:]
    assert api.get(bucket).json() == {"bucket_id": text, "streams": 1}
    listed = api.get(f"{bucket}/streams").json()
    assert listed["bucket_id"] == text
    assert [stream["stream_id"] for stream in listed["streams"]] == ["doc"]
    assert content(api, f"{bucket}/doc") == b"[1,2]"
    post(api, f"{bucket}/doc", b"3", JSON)
    assert content(api, f"/v1/stream/{name}/doc") == b"[1,2,3]"
    batch = api.post(f"{bucket}/doc/append-batch", headers=JSON, content=frames(b"4"))
    assert batch.status_code == 200
    assert api.put(f"{bucket}/doc/attrs", headers=JSON, content=b'{"title":"x"}').status_code == 204
    assert api.put(f"{bucket}/doc/snapshot/2", content=b"state").status_code == 204
    assert api.get(f"{bucket}/doc/snapshot", follow_redirects=True).content == b"state"
    assert api.get(f"{bucket}/doc/bootstrap").status_code == 200
    kinds = [line["kind"] for line in feed(api, bucket)]
    assert kinds == ["create", "append", "append", "append", "append", "attributes", "snapshot", "trim"]
    make(api, f"{bucket}/second", TEXT)
    refused(api.delete(bucket), 409, "bucket_not_empty")
    api.delete(f"{bucket}/doc")
    api.delete(f"/v1/stream/{name}/second")
    assert api.delete(bucket).status_code == 204
    refused(api.get(bucket), 400, "invalid_bucket_id")


@pytest.mark.parametrize("name", ["abc", "UPPER", "with.dot", "caf%C3%A9", "x" * 65, "%FF", "%00", "v1"])
def test_a_name_that_no_bucket_has_or_could_be_given_is_invalid(
    new_server_api: httpx.Client, name: str
) -> None:
    for method, path in [
        ("GET", f"/{name}"),
        ("GET", f"/{name}?offset=-1"),
        ("GET", f"/{name}?offset=now&live=long-poll"),
        ("GET", f"/{name}?offset=now&live=sse"),
        ("GET", f"/{name}/streams"),
        ("DELETE", f"/{name}"),
    ]:
        refused(new_server_api.request(method, path), 400, "invalid_bucket_id")


def test_a_stream_in_such_a_bucket_is_only_missing(new_server_api: httpx.Client) -> None:
    """The flat route can make it at any time, so readers may wait for it."""
    refused(new_server_api.get("/UPPER/doc"), 404, "bucket_not_found")
    make(new_server_api, "/v1/stream/UPPER/doc", TEXT, b"x")
    assert content(new_server_api, "/UPPER/doc") == b"x"
    new_server_api.delete("/UPPER/doc")
    assert new_server_api.delete("/UPPER").status_code == 204


def test_the_bucket_of_plain_names_can_be_looked_into(api: httpx.Client, path: str) -> None:
    make(api, path, TEXT, b"x")
    name = path.rpartition("/")[2]
    listed = api.get("/_default/streams", params={"prefix": name}).json()["streams"]
    assert [stream["stream_id"] for stream in listed] == [name]
    assert content(api, f"/_default/{name}") == b"x"


def test_buckets_survive_a_restart(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        kept, ended, again = make_bucket(api), make_bucket(api), make_bucket(api)
        make(api, "/v1/stream/Flat/s", TEXT, b"x")
        old = position_of(api, again)
        api.delete(ended)
        api.delete(again)
        api.put(again)
    server.kill()
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as api:
        assert api.get(kept).json() == {"bucket_id": kept[1:], "streams": 0}
        refused(api.get(ended), 404, "bucket_not_found")
        assert api.get("/Flat").json()["streams"] == 1
        refused(api.get(again, params={"offset": old}), 410, "position_trimmed")
        refused(api.put(kept), 409, "bucket_exists")


# Races


class Outcome:
    """What a round of concurrent requests came to."""

    def __init__(self, api: httpx.Client, bucket: str, stream: str) -> None:
        self.read = api.get(f"{bucket}/{stream}").status_code
        self.flat = api.get(f"/v1/stream{bucket}/{stream}").status_code
        self.bucket = api.get(bucket)
        self.listing = api.get(f"{bucket}/streams")
        self.buckets = [found["bucket_id"] for found in _all_buckets(api)]
        self.name, self.stream = bucket[1:], stream

    def check(self) -> None:
        """A stream that can be read is in a bucket that is listed and lists it; and the other way round."""
        is_there = self.read == 200
        assert self.flat == self.read
        assert self.read in (200, 404)
        listed = self.listing.status_code == 200 and [
            found["stream_id"] for found in self.listing.json()["streams"]
        ]
        assert (listed == [self.stream]) is is_there
        assert self.bucket.status_code == self.listing.status_code
        assert (self.name in self.buckets) is (self.bucket.status_code == 200)
        if self.bucket.status_code == 200:
            assert self.bucket.json()["streams"] == int(is_there)


def _all_buckets(api: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = api.get("/cluster/buckets", params={"after": after, "limit": "1000"}).json()
        found += page["buckets"]
        if not page["has_more"]:
            return found
        after = page["next_cursor"]


ROUNDS = {
    "two deletes and a stream": ["DELETE {b}", "DELETE {b}", "PUT {b}/s"],
    "two deletes and a stream on the fly": ["DELETE {b}", "DELETE {b}", "PUT /v1/stream{b}/s"],
    "a delete, a bucket and a stream": ["DELETE {b}", "PUT {b}", "PUT {b}/s"],
    "everything": ["DELETE {b}", "PUT /v1/stream{b}/s", "DELETE {b}", "PUT {b}", "PUT {b}/s", "DELETE {b}/s"],
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_concurrent_deletes_and_creates_leave_no_orphan(server: Server, api: httpx.Client, kind: str) -> None:
    bucket = make_bucket(api)
    connections = [Raw(server) for _ in ROUNDS[kind]]
    for turn in range(60):
        api.put(bucket)
        requests = [tuple(text.format(b=bucket).split(" ")) for text in ROUNDS[kind]]
        order = requests[turn % len(requests) :] + requests[: turn % len(requests)]
        for raw, (method, path) in zip(connections, order, strict=True):
            raw.ask(method, path, body=b"" if method == "PUT" else None)
        statuses = [raw.answer().status for raw in connections]
        assert set(statuses) <= {201, 200, 204, 404, 409}
        Outcome(api, bucket, "s").check()
        streams = [status for (_, path), status in zip(order, statuses, strict=True) if path.endswith("/s")]
        if kind.startswith("two deletes"):
            deleted = [s for (method, _), s in zip(order, statuses, strict=True) if method == "DELETE"]
            made = streams[0] == 201
            assert deleted.count(204) <= 1 or made
            there = api.get(f"{bucket}/s").status_code == 200
            assert there is made, "what was acknowledged is there"
        api.delete(f"{bucket}/s")
    for raw in connections:
        raw.close()


def test_buckets_are_deleted_under_writers_only_when_they_are_empty(
    server: Server, api: httpx.Client
) -> None:
    """Writers create, append, read back and delete; others delete the bucket all the while."""
    bucket = make_bucket(api)
    over = threading.Event()
    wrong: list[str] = []
    deleted = [0]

    def write(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as own:
            path = f"{bucket}/s{number}"
            for turn in range(40):
                if own.put(f"/v1/stream{path}", headers=TEXT, content=b"%d" % turn).status_code != 201:
                    wrong.append(f"{path} was there")
                answer = own.get(path)
                if (answer.status_code, answer.content) != (200, b"%d" % turn):
                    wrong.append(f"{path}: {answer.status_code} {answer.content!r}")
                if own.delete(path).status_code != 204:
                    wrong.append(f"{path} was gone")

    def delete() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as own:
            while not over.is_set():
                deleted[0] += own.delete(bucket).status_code == 204

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    deleters = [threading.Thread(target=delete) for _ in range(2)]
    for thread in [*writers, *deleters]:
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in deleters:
        thread.join()
    assert wrong == []
    assert deleted[0] > 0
