"""What a scraper sees of the store."""

import time
from collections.abc import Iterator

import httpx
import pytest
from tests.conftest import StartServer
from tests.http.wire import BINARY, TEXT, content, make, post
from tests.scrape import Scrape, scrape

pytestmark = pytest.mark.one_node("the metrics are those of one node")

EVENTS = [b'{"event":"opened","number":%d}' % number for number in range(500)]


@pytest.fixture(scope="module")
def own(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server that flushes only when it is told to."""
    with httpx.Client(base_url=start_server(cold__flush_interval="1h").url, timeout=60) as client:
        yield client


def moved(before: Scrape, after: Scrape, name: str, **labels: str) -> float:
    """By how much a metric changed."""
    return after.value(name, **labels) - before.value(name, **labels)


def until(api: httpx.Client, name: str, value: float, **labels: str) -> Scrape:
    """Wait until a metric has a value."""
    give_up_at = time.monotonic() + 60
    while (seen := scrape(api)).value(name, **labels) != value:
        assert time.monotonic() < give_up_at, f"{name} is {seen.value(name, **labels)}"
        time.sleep(0.01)
    return seen


def test_a_flush_is_counted_timed_and_measured(own: httpx.Client) -> None:
    before = scrape(own)
    body = b"".join(EVENTS)
    make(own, "/v1/stream/flushes", BINARY)
    for event in EVENTS:
        post(own, "/v1/stream/flushes", event)
    full = scrape(own)
    hot = moved(before, full, "ursula_write_backpressure_bytes", limit="max_hot_bytes")
    assert hot > len(body)  # what it takes to keep them counts too
    assert full["ursula_cold_backlog_age_seconds"] > 0
    (group,) = own.post("/cluster/flush").json()["groups"]
    after = until(own, "ursula_hot_bytes", 0)
    assert moved(before, after, "ursula_cold_flushes_total") == 1
    assert moved(before, after, "ursula_cold_flush_failures_total") == 0
    assert moved(before, after, "ursula_cold_flush_duration_seconds_count") == 1
    assert moved(before, after, "ursula_cold_flush_duration_seconds_sum") > 0
    assert moved(before, after, "ursula_cold_segments") == 1
    assert moved(before, after, "ursula_cold_payload_bytes") == len(body)
    size = moved(before, after, "ursula_cold_segment_bytes")
    assert 0 < size < len(body)
    assert moved(before, after, "ursula_cold_written_bytes_total") > size
    assert moved(before, after, "ursula_cold_state_bytes") > 0
    assert after["ursula_cold_manifest_position"] == group["position"]
    assert 0 <= after["ursula_cold_manifest_age_seconds"] < 60
    assert after["ursula_cold_backlog_age_seconds"] == 0
    assert after["ursula_cold_flush_interval_seconds"] == 3600
    assert until(own, "ursula_write_backpressure_bytes", 0, limit="max_hot_bytes")


def test_idle_streams_are_parked(own: httpx.Client) -> None:
    before = scrape(own)
    for number in range(10):
        make(own, f"/v1/stream/parked/{number}", TEXT, b"x")
    own.post("/cluster/flush").raise_for_status()
    until(own, "ursula_cold_parked_streams", before["ursula_streams"] + 10)


def test_streams_that_ended_are_counted_until_they_are_back(own: httpx.Client) -> None:
    before = scrape(own)
    make(own, "/v1/stream/ended/a", TEXT, b"x")
    assert own.delete("/v1/stream/ended/a").status_code == 204
    assert moved(before, scrape(own), "ursula_cold_ended_streams") == 1
    own.post("/cluster/undelete", json={"bucket": "ended", "stream": "a"}).raise_for_status()
    assert moved(before, scrape(own), "ursula_cold_ended_streams") == 0


def test_a_page_ends_where_a_row_group_does_that_has_half_a_page(start_server: StartServer) -> None:
    server = start_server(cold__flush_interval="1h", cold__cache_bytes="0")  # nothing stays in memory
    quarter = 256 << 10
    messages = [bytes([number]) * quarter for number in range(13)]  # row groups of four, and one
    with httpx.Client(base_url=server.url, timeout=60) as api:
        make(api, "/v1/stream/aligned")
        for message in messages:
            post(api, "/v1/stream/aligned", message)
        api.post("/cluster/flush").raise_for_status()
        until(api, "ursula_hot_bytes", 0)

        def ends(number: int) -> list[int]:
            """Where the pages from a message on end, in messages."""
            found = []
            while number < len(messages):
                answer = api.get("/v1/stream/aligned", params={"offset": str(number * quarter)})
                end = int(answer.headers["stream-next-offset"])
                assert answer.content == b"".join(messages)[number * quarter : end]
                number = end // quarter
                found.append(number)
            return found

        assert ends(0) == [4, 8, 12, 13]
        assert ends(1) == [4, 8, 12, 13]
        assert ends(3) == [7, 8, 12, 13]  # a quarter of a page, and then whole row groups again


def test_reads_of_what_is_stored_fill_the_caches(own: httpx.Client) -> None:
    path, rows, spools = "/v1/stream/cached/a", {"cache": "row_groups"}, {"cache": "spools"}
    make(own, path, BINARY, b"x" * 10_000)
    own.post("/cluster/flush").raise_for_status()
    until(own, "ursula_hot_bytes", 0)
    before = scrape(own)
    assert content(own, path) == b"x" * 10_000
    first = scrape(own)
    assert moved(before, first, "ursula_cold_fetches_total") > 0
    assert moved(before, first, "ursula_cold_fetched_bytes_total") > 0
    assert moved(before, first, "ursula_cold_cache_misses_total", **rows) > 0
    assert moved(before, first, "ursula_cold_cache_bytes", **rows) > 0
    assert content(own, path) == b"x" * 10_000
    second = scrape(own)
    assert moved(first, second, "ursula_cold_fetches_total") == 0
    assert moved(first, second, "ursula_cold_cache_misses_total", **rows) == 0
    assert moved(first, second, "ursula_cold_cache_hits_total", **rows) > 0
    assert own.get("/cached?offset=-1").status_code == 200
    third = scrape(own)
    assert moved(second, third, "ursula_cold_cache_misses_total", **spools) > 0
    assert moved(second, third, "ursula_cold_cache_bytes", **spools) > 0
    assert third.value("ursula_cold_cache_limit_bytes", **rows) == 256 << 20
    assert third["ursula_cold_cache_evictions_total"] == 0
