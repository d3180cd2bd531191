"""Every metric moves when it should, and says what it says."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from tests.conftest import StartServer
from tests.faults.long_log import write_long_log
from tests.http.raw import Raw, ask
from tests.http.wire import BINARY, JSON, TEXT, make, post
from tests.scrape import Scrape, scrape
from tests.server import Server

pytestmark = pytest.mark.one_node("the metrics are those of one node")

REQUESTS = "ursula_http_requests_total"
LATENCY = "ursula_http_request_duration_seconds"


@pytest.fixture(scope="module")
def own(start_server: StartServer) -> Iterator[httpx.Client]:
    """A client of a server that nobody else talks to, and that writes nothing by itself."""
    server = start_server(http__long_poll="200ms", cold__flush_interval="1h")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def moved(before: Scrape, after: Scrape, name: str, **labels: str) -> float:
    """By how much a metric changed."""
    return after.value(name, **labels) - before.value(name, **labels)


@pytest.mark.parametrize(
    ("method", "url", "route", "status"),
    [
        ("GET", "/v1/stream/routes/there", "stream", 200),
        ("HEAD", "/routes/there", "stream", 200),
        ("GET", "/v1/stream/routes/missing", "stream", 404),
        ("PATCH", "/v1/stream/routes/there", "stream", 405),
        ("GET", "/v1/stream/routes/there?offset=now&live=long-poll&timeout_ms=1", "stream_long_poll", 204),
        ("GET", "/routes/there/attrs", "attrs", 200),
        ("GET", "/routes/there/snapshot", "snapshot", 404),
        ("PUT", "/routes/there/retention/0", "retention", 409),
        ("GET", "/routes/there/bootstrap", "bootstrap", 200),
        ("POST", "/routes/there/append-batch", "append_batch", 400),
        ("GET", "/routes", "bucket", 200),
        ("GET", "/routes?offset=-1", "feed", 200),
        ("GET", "/routes?offset=now&live=long-poll&timeout_ms=1", "feed_long_poll", 204),
        ("GET", "/routes/streams", "streams", 200),
        ("GET", "/healthz", "health", 200),
        ("GET", "/readyz/cluster", "health", 200),
        ("GET", "/metrics", "metrics", 200),
        ("GET", "/cluster/status", "cluster", 200),
        ("POST", "/cluster/flush", "cluster", 200),
        ("GET", "/cluster/nothing", "unknown", 404),
        ("GET", "/", "unknown", 404),
        ("OPTIONS", "/anything", "preflight", 204),
    ],
)
def test_a_request_is_counted_by_route_method_and_status(
    own: httpx.Client, method: str, url: str, route: str, status: int
) -> None:
    own.put("/v1/stream/routes/there", headers=TEXT)
    before = scrape(own)
    assert own.request(method, url, headers=TEXT).status_code == status
    after = scrape(own)
    labels = {"route": route, "method": method, "status": str(status)}
    own_scrapes = 1 if url == "/metrics" else 0
    assert moved(before, after, REQUESTS, **labels) == 1 + own_scrapes
    assert moved(before, after, REQUESTS) == 2  # it and the scrape before
    timed = 0 if "live" in url else 1
    assert moved(before, after, f"{LATENCY}_count", **labels) == timed + own_scrapes
    assert moved(before, after, f"{LATENCY}_count") == timed + 1


def test_methods_that_nobody_uses_here_share_a_label(own: httpx.Client) -> None:
    before = scrape(own)
    methods = ("ACL", "BIND", "CHECKOUT", "COPY", "LINK", "LOCK", "MERGE", "MKCOL", "MOVE", "NOTIFY")
    for method in methods:
        assert own.request(method, "/v1/stream/x").status_code == 405
    after = scrape(own)
    assert moved(before, after, REQUESTS, method="other", status="405") == len(methods)
    assert len(after.families[REQUESTS].samples) <= len(before.families[REQUESTS].samples) + 1


def test_latencies_are_a_histogram(own: httpx.Client) -> None:
    make(own, "/v1/stream/latencies", TEXT)
    before = scrape(own)
    began = time.perf_counter()
    for _ in range(30):
        post(own, "/v1/stream/latencies", b"x", TEXT)
    took = time.perf_counter() - began
    after = scrape(own)
    labels = {"route": "stream", "method": "POST", "status": "204"}
    assert moved(before, after, f"{LATENCY}_count", **labels) == 30
    assert 0 < moved(before, after, f"{LATENCY}_sum", **labels) <= took
    buckets = [
        sample.value
        for sample in after.families[LATENCY].samples
        if sample.name == f"{LATENCY}_bucket" and labels.items() <= sample.labels.items()
    ]
    assert all(lower <= upper for lower, upper in pairwise(buckets))
    assert buckets[-1] == after.value(f"{LATENCY}_count", **labels)


def test_a_long_wait_is_no_slow_read(own: httpx.Client) -> None:
    make(own, "/v1/stream/waits", TEXT)
    before = scrape(own)
    assert own.get("/v1/stream/waits?offset=now&live=long-poll").status_code == 204
    after = scrape(own)
    assert moved(before, after, REQUESTS, route="stream_long_poll") == 1
    assert moved(before, after, f"{LATENCY}_count") == 1, "only the scrape"
    assert after.value(f"{LATENCY}_count", route="stream_long_poll") == 0


def test_appends_count_messages_and_bytes(own: httpx.Client) -> None:
    make(own, "/v1/stream/counted/text", TEXT, b"first")
    make(own, "/v1/stream/counted/json", JSON)
    before = scrape(own)
    post(own, "/v1/stream/counted/text", b"12345", TEXT)
    post(own, "/v1/stream/counted/json", b'["a","b","c"]', JSON)
    make(own, "/v1/stream/counted/more", TEXT, b"1234567")
    after = scrape(own)
    assert moved(before, after, "ursula_append_messages_total") == 5
    assert moved(before, after, "ursula_append_bytes_total") == 5 + 13 + 7
    assert moved(before, after, "ursula_append_batch_commands_count") == 3
    assert moved(before, after, "ursula_append_batch_commands_sum") == 3
    assert moved(before, after, "ursula_append_batch_bytes_sum") > 5 + 9 + 7
    assert moved(before, after, "ursula_hot_bytes") >= 5 + 9 + 7


def test_what_is_refused_is_no_append(own: httpx.Client) -> None:
    make(own, "/v1/stream/refusing", TEXT)
    before = scrape(own)
    post(own, "/v1/stream/refusing", b"binary", BINARY, status=409)
    post(own, "/v1/stream/missing", b"nowhere", TEXT, status=404)
    after = scrape(own)
    assert moved(before, after, "ursula_append_messages_total") == 0
    assert moved(before, after, "ursula_append_bytes_total") == 0


def test_writers_at_the_same_time_share_batches_and_syncs(own: httpx.Client) -> None:
    paths = [f"/v1/stream/crowd/{number}" for number in range(16)]
    for path in paths:
        make(own, path, TEXT)
    before = scrape(own)

    def write(path: str) -> None:
        for _ in range(20):
            post(own, path, b"x", TEXT)

    with ThreadPoolExecutor(len(paths)) as pool:
        list(pool.map(write, paths))
    after = scrape(own)
    assert moved(before, after, "ursula_append_messages_total") == 320
    assert moved(before, after, "ursula_append_batch_commands_sum") >= 320  # the collector may have come by
    entries = moved(before, after, "ursula_append_batch_commands_count")
    assert entries < 320
    assert moved(before, after, "ursula_log_sync_duration_seconds_count") == entries
    assert moved(before, after, "ursula_log_sync_duration_seconds_sum") > 0
    assert moved(before, after, "ursula_log_tail_position") == entries
    assert moved(before, after, "ursula_log_applied_position") == entries
    assert moved(before, after, "ursula_log_size_bytes") > 320
    assert after["ursula_log_pending_commands"] == 0


def test_live_connections_are_seen_while_they_last(own: httpx.Client, start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, timeout=60) as api, ExitStack() as stack:
        make(api, "/v1/stream/live/a", TEXT)
        make(api, "/v1/stream/live/b", TEXT)

        def connect(path: str) -> Raw:
            return stack.enter_context(Raw(server)).ask("GET", path)

        waiting = connect("/v1/stream/live/a?offset=now&live=long-poll&timeout=60")
        following = [connect("/v1/stream/live/a?offset=now&live=sse") for _ in range(3)]
        following.append(connect("/live?offset=now&live=sse"))
        for raw in following:
            assert raw.begin()[0] == 200
            assert b"upToDate" in raw.chunk()
        until(api, "ursula_live_connections", 5)
        seen = scrape(api)
        assert seen.value("ursula_live_connections", kind="long_poll") == 1
        assert seen.value("ursula_live_connections", kind="sse") == 4
        assert seen["ursula_live_watchers"] == 3
        assert seen.value(REQUESTS, route="stream_sse", status="200") == 3
        assert seen.value(REQUESTS, route="feed_sse", status="200") == 1
        assert seen.value(REQUESTS, route="stream_long_poll") == 0  # it is not answered yet
        sent = seen["ursula_live_sse_bytes_total"]
        assert sent > 0
        post(api, "/v1/stream/live/a", b"news", TEXT)
        assert waiting.answer().body == b"news"
        chunks = [raw.chunk() for raw in following]
        seen = scrape(api)
        assert seen["ursula_live_sse_bytes_total"] == sent + sum(map(len, chunks))
        assert seen.value("ursula_live_connections", kind="long_poll") == 0
        assert seen.value(REQUESTS, route="stream_long_poll", status="200") == 1
        assert seen.value(f"{LATENCY}_count", route="stream_sse") == 0
        stack.close()
        until(api, "ursula_live_connections", 0)
        assert scrape(api)["ursula_live_watchers"] == 0


def until(api: httpx.Client, name: str, value: float) -> None:
    """Wait until a metric has a value."""
    give_up_at = time.monotonic() + 60
    while scrape(api)[name] != value:
        assert time.monotonic() < give_up_at, f"{name} is {scrape(api)[name]}"
        time.sleep(0.01)


def test_streams_and_buckets_are_counted(own: httpx.Client) -> None:
    before = scrape(own)
    make(own, "/v1/stream/census-1/a", TEXT, b"12345")
    make(own, "/v1/stream/census-1/b", TEXT)
    make(own, "/v1/stream/census-2/a", TEXT)
    after = scrape(own)
    assert moved(before, after, "ursula_buckets") == 2
    assert moved(before, after, "ursula_streams") == 3
    assert own.delete("/v1/stream/census-2/a").status_code == 204
    assert own.delete("/census-2").status_code == 204
    assert moved(after, scrape(own), "ursula_buckets") == -1
    assert moved(after, scrape(own), "ursula_streams") == -1


def test_a_new_segment_is_counted(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server(limits__log_segment_bytes="64KiB").url, timeout=60) as api:
        make(api, "/v1/stream/segments", BINARY)
        assert scrape(api)["ursula_log_segments"] == 1
        for _ in range(3):
            post(api, "/v1/stream/segments", b"x" * 40_000)
        assert scrape(api)["ursula_log_segments"] == 3


def test_a_log_in_memory_has_no_syncs_and_no_segments(start_server: StartServer) -> None:
    with httpx.Client(base_url=start_server("--log", "memory").url, timeout=60) as api:
        make(api, "/v1/stream/volatile", BINARY, b"x")
        seen = scrape(api)
    assert "ursula_log_sync_duration_seconds" not in seen.families
    assert "ursula_log_segments" not in seen.families
    assert seen["ursula_log_size_bytes"] > 0
    assert seen["ursula_log_failures_total"] == 0


def test_the_process_and_the_build_are_shown(own: httpx.Client) -> None:
    seen = scrape(own)
    assert seen["ursula_build_info"] == 1
    assert seen.labels("ursula_build_info") == {"version", "python"}
    assert seen["process_resident_memory_bytes"] > 10_000_000
    assert seen["process_open_fds"] > 3
    assert seen["process_cpu_seconds_total"] > 0
    assert seen["process_start_time_seconds"] < time.time()


def test_metrics_answer_while_the_log_is_replayed(tmp_path: Path) -> None:
    write_long_log(tmp_path / "data", messages=400_000)
    server = Server(tmp_path / "data").start(ready=False)
    try:
        with httpx.Client(base_url=server.url, timeout=60) as api:
            during = scrape(api)
            assert api.get("/v1/stream/long-0").status_code == 503
            assert during["ursula_rehydrate_complete"] == 0
            assert 0 <= during["ursula_rehydrate_progress_ratio"] < 1
            server.wait_until_ready()
            after = scrape(api)
    finally:
        server.kill()
    assert after["ursula_rehydrate_complete"] == 1
    assert after["ursula_rehydrate_progress_ratio"] == 1
    assert after["ursula_rehydrate_seconds"] > during["ursula_rehydrate_seconds"] > 0
    assert after.value(REQUESTS, route="stream", status="503") == 1
    assert after["ursula_append_messages_total"] == 0  # what is replayed was counted when it was written
    assert after["ursula_streams"] == 50
    assert after["ursula_hot_bytes"] >= 400_000 * 20


def test_head_has_no_body(server: Server) -> None:
    answer = ask(server, "HEAD", "/metrics")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
