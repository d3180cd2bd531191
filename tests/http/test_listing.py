"""The list of a bucket's streams: sorted, in pages, and right while streams come and go."""

import random
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.http.raw import Raw
from tests.http.surface import make_bucket
from tests.http.wire import BINARY, CLOSED, JSON, TEXT, make, post
from tests.server import Server


def page(api: httpx.Client, bucket: str, **query: Any) -> dict[str, Any]:
    answer = api.get(f"{bucket}/streams", params={name: str(value) for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    assert list(found) == ["bucket_id", "prefix", "stream_count", "streams", "next_cursor", "has_more"]
    assert found["stream_count"] == len(found["streams"])
    assert found["prefix"] == query.get("prefix", "")
    names = [stream["stream_id"] for stream in found["streams"]]
    assert found["next_cursor"] == (names[-1] if names else None)
    return found


def names(found: dict[str, Any]) -> list[str]:
    return [stream["stream_id"] for stream in found["streams"]]


def pages(api: httpx.Client, bucket: str, limit: int, **query: Any) -> Iterator[list[str]]:
    """The names, page by page."""
    while True:
        found = page(api, bucket, limit=limit, **query)
        assert len(names(found)) == limit or not found["has_more"]
        yield names(found)
        if not found["has_more"]:
            return
        query["after"] = found["next_cursor"]


def test_a_stream_is_described(timed_server: Server, timed_api: httpx.Client) -> None:
    api = timed_api
    bucket = make_bucket(api)
    before = timed_server.now() * 1000
    make(api, f"{bucket}/b", {**JSON}, b"[1,22]")
    make(api, f"{bucket}/a", {"content-type": "text/plain; charset=utf-8", **CLOSED})
    timed_server.pass_time(1)
    post(api, f"{bucket}/b", b"3", JSON)
    found = page(api, bucket)
    assert found["bucket_id"] == bucket[1:]
    assert found["has_more"] is False
    first, second = found["streams"]
    assert {key: value for key, value in first.items() if not key.endswith("_ms")} == {
        "stream_id": "a",
        "status": "closed",
        "content_type": "text/plain; charset=utf-8",
        "tail_offset": 0,
    }
    assert (second["stream_id"], second["status"], second["tail_offset"]) == ("b", "open", 4)
    assert before - 1 <= second["created_at_ms"] < second["last_write_at_ms"] <= timed_server.now() * 1000
    assert first["created_at_ms"] == first["last_write_at_ms"]


def test_an_empty_bucket_has_an_empty_list(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    assert page(api, bucket) == {
        "bucket_id": bucket[1:],
        "prefix": "",
        "stream_count": 0,
        "streams": [],
        "next_cursor": None,
        "has_more": False,
    }


UNICODE = ["Z", "a", "a b", "a%", "a+b", "ab", "b", "z", "\u00e9", "\u044f", "\uffee", "\U0001f600", "~"]


@pytest.fixture(scope="module")
def odd(api: httpx.Client) -> str:
    """A bucket of streams whose names need care."""
    bucket = make_bucket(api)
    for name in UNICODE:
        make(api, f"{bucket}/{quote(name, safe='')}")
    return bucket


def test_names_are_in_the_order_of_their_bytes(api: httpx.Client, odd: str) -> None:
    expected = sorted(UNICODE, key=str.encode)
    assert names(page(api, odd)) == expected
    for limit in range(1, len(UNICODE) + 2):
        assert [name for found in pages(api, odd, limit) for name in found] == expected


def test_any_name_can_be_a_cursor_and_any_text_a_prefix(api: httpx.Client, odd: str) -> None:
    expected = sorted(UNICODE, key=str.encode)
    for text in [*expected, "", "A", "aa", "\u00e8", "\U0001ffff", "zz", "0", "a%2"]:
        after = [name for name in expected if name.encode() > text.encode()]
        assert names(page(api, odd, after=text)) == after
        assert names(page(api, odd, prefix=text)) == [name for name in expected if name.startswith(text)]
        both = [name for name in after if name.startswith("a")]
        assert names(page(api, odd, prefix="a", after=text)) == both
    assert [name for found in pages(api, odd, 2, prefix="a") for name in found] == [
        "a",
        "a b",
        "a%",
        "a+b",
        "ab",
    ]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10])
def test_more_is_promised_only_if_there_is_more(api: httpx.Client, count: int) -> None:
    bucket = make_bucket(api)
    for number in range(count):
        make(api, f"{bucket}/x{number:02}")
    make(api, f"{bucket}/y")
    found = page(api, bucket, prefix="x", limit=5)
    assert len(names(found)) == min(count, 5)
    assert found["has_more"] is (count > 5)
    full = page(api, bucket, limit=count + 1)
    assert full["has_more"] is False


def test_deleted_expired_and_hidden_streams_are_not_listed(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    for name in ("deleted", "hidden", "kept"):
        make(api, f"{bucket}/{name}")
    make(api, f"{bucket}/fork", {"stream-forked-from": f"{bucket}/hidden"})
    api.delete(f"{bucket}/deleted")
    api.delete(f"{bucket}/hidden")
    make(api, f"{bucket}/expired", {**TEXT, "stream-ttl": "0"})
    assert api.head(f"{bucket}/expired").status_code == 404
    assert names(page(api, bucket)) == ["fork", "kept"]
    assert api.get(bucket).json()["streams"] == 2
    api.delete(f"{bucket}/fork")
    make(api, f"{bucket}/hidden")
    assert names(page(api, bucket)) == ["hidden", "kept"]


def test_streams_with_slashes_are_listed_as_they_are_named(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    for name in ("a", "a/b", "a/b/c", "streams"):
        make(api, f"/v1/stream{bucket}/{name}")
    assert names(page(api, bucket)) == ["a", "a/b", "a/b/c", "streams"]
    assert names(page(api, bucket, prefix="a/", after="a/b")) == ["a/b/c"]


def test_an_append_moves_the_tail_in_the_list(api: httpx.Client) -> None:
    bucket = make_bucket(api)
    make(api, f"{bucket}/s", BINARY)
    for count in range(1, 4):
        post(api, f"{bucket}/s", b"xx")
        assert page(api, bucket)["streams"][0]["tail_offset"] == 2 * count
    post(api, f"{bucket}/s", b"", CLOSED)
    assert page(api, bucket)["streams"][0]["status"] == "closed"


class Churn:
    """Threads that create and delete streams between those of a bucket."""

    def __init__(self, server: Server, bucket: str) -> None:
        self._over = threading.Event()
        self.rounds = 0
        self._threads = [
            threading.Thread(target=self._run, args=(server, bucket, number)) for number in range(2)
        ]

    def __enter__(self) -> "Churn":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, server: Server, bucket: str, number: int) -> None:
        chance = random.Random(number)
        with Raw(server) as raw:
            while not self._over.is_set():
                path = f"{bucket}/s{chance.randrange(2500):04}-{number}{chance.random()}"
                assert raw.ask("PUT", path, body=b"").answer().status == 201
                assert raw.ask("DELETE", path).answer().status == 204
                self.rounds += 1


def test_a_long_list_is_right_while_streams_come_and_go(server: Server, api: httpx.Client) -> None:
    bucket = make_bucket(api)
    lasting = [f"s{number:04}" for number in range(2500)]
    with Raw(server) as raw:
        order = list(lasting)
        random.Random(1).shuffle(order)
        for first in range(0, len(order), 100):  # many requests at once: they share a sync
            some = order[first : first + 100]
            for name in some:
                raw.ask("PUT", f"{bucket}/{name}", body=b"")
            for _ in some:
                assert raw.answer().status == 201
    stays = set(lasting)
    with Churn(server, bucket) as churn:
        limits = [97, 1000, 1000]
        while limits or churn.rounds <= 10:
            limit = limits.pop() if limits else 1000
            found = [name for part in pages(api, bucket, limit) for name in part]
            assert found == sorted(found, key=str.encode)
            assert len(set(found)) == len(found)
            assert [name for name in found if name in stays] == lasting
        found = [name for part in pages(api, bucket, 50, prefix="s1") for name in part]
        assert [name for name in found if name in stays] == [f"s1{n:03}" for n in range(1000)]
    assert names(page(api, bucket)) == lasting[:1000], "the default is a thousand"
    assert api.get(bucket).json()["streams"] == 2500
