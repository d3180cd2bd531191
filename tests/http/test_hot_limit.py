"""The store takes nothing: appends go on up to cold.max_hot_bytes, are turned away, and come back."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.spread_server import any_server
from tests.http.wire import BINARY, content, make, post, refused
from tests.scrape import Scrape, scrape
from tests.server import Server

LIMIT = 200_000
MESSAGE = b"m" * 10_000
HOT = {"limit": "max_hot_bytes"}


class Broken:
    """A store whose folder is a file for a while, as if its disk were gone."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk" / "cold"
        self._disk = self.root.parent
        self._away = folder / "away"
        self._disk.mkdir()

    def take_away(self) -> None:
        """From now on nothing can be stored."""
        os.rename(self._disk, self._away)
        self._disk.touch()

    def bring_back(self) -> None:
        """It is as it was."""
        self._disk.unlink()
        os.rename(self._away, self._disk)


@pytest.fixture
def disk(tmp_path: Path) -> Broken:
    return Broken(tmp_path)


@pytest.fixture
def server(tmp_path: Path, disk: Broken) -> Iterator[Server]:
    """A server with little memory."""
    settings = {
        "cold.root": str(disk.root),
        "cold.max_hot_bytes": str(LIMIT),
        "cold.flush_size": "20000",
        "cold.flush_interval": "100ms",
    }
    with any_server(tmp_path / "data", settings=settings) as running:
        yield running


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def until(found: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something."""
    give_up_at = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def statistics(api: httpx.Client) -> dict[str, Any]:
    """What the server says of its memory."""
    found: dict[str, Any] = api.get("/cluster/hot-cold-stats").json()
    return found


def fill(api: httpx.Client, path: str) -> int:
    """Append until that is turned away; how many appends were taken."""
    for count in range(1000):
        answer = api.post(path, headers=BINARY, content=MESSAGE)
        if answer.status_code != 204:
            refused(answer, 503, "write_backpressure")
            assert int(answer.headers["retry-after"]) >= 1
            return count
    raise AssertionError("there is no limit")


@pytest.mark.one_node("asks one node about its memory")
def test_appends_are_turned_away_at_the_limit_and_come_back_by_themselves(
    server: Server, api: httpx.Client, disk: Broken, path: str
) -> None:
    make(api, path, BINARY, b"before ")
    post(api, f"{path}", b"and stored ")
    api.post("/cluster/flush").raise_for_status()
    before = scrape(api)
    assert statistics(api)["backpressure"] == {"active": False, "reason": None}

    disk.take_away()
    taken = fill(api, path)
    assert LIMIT // len(MESSAGE) * 0.8 <= taken <= LIMIT // len(MESSAGE)
    until(lambda: statistics(api)["flush_problem"] is not None)
    found = statistics(api)
    assert found["backpressure"]["active"] is True
    assert "cold.max_hot_bytes" in found["backpressure"]["reason"]
    assert str(disk.root) in found["backpressure"]["reason"]
    assert str(disk.root) in found["flush_problem"]
    during = scrape(api)
    assert during.value("ursula_write_backpressure_active", **HOT) == 1
    assert during.value("ursula_write_backpressure_rejections_total", **HOT) == 1
    assert during.value("ursula_write_backpressure_limit_bytes", **HOT) == LIMIT
    assert taken * len(MESSAGE) <= during.value("ursula_write_backpressure_bytes", **HOT) <= LIMIT
    assert during["ursula_cold_flush_failures_total"] > 0
    assert during["ursula_cold_manifest_position"] == before["ursula_cold_manifest_position"]
    assert during["ursula_cold_backlog_age_seconds"] > 0

    # What needs no memory goes on, and so do reads of what is still there.
    make(api, f"{path}-empty", BINARY)
    assert api.get(path, params={"offset": "18"}).content == MESSAGE * taken
    assert api.delete(f"{path}-empty").status_code == 204
    assert api.get("/readyz/local").status_code == 200
    answer = api.post("/cluster/flush")
    refused(answer, 503, "store_unavailable")
    assert str(disk.root) in answer.json()["error"]["message"]
    assert "retry-after" in answer.headers

    disk.bring_back()
    until(lambda: api.post(path, headers=BINARY, content=b" after").status_code == 204)
    api.post("/cluster/flush").raise_for_status()
    assert content(api, path) == b"before and stored " + MESSAGE * taken + b" after"
    until(lambda: statistics(api)["hot_bytes"] == 0)
    found = statistics(api)
    assert found["backpressure"] == {"active": False, "reason": None}
    assert found["flush_problem"] is None
    after = scrape(api)
    assert after.value("ursula_write_backpressure_active", **HOT) == 0
    assert after["ursula_cold_manifest_position"] > before["ursula_cold_manifest_position"]
    said = [entry["message"] for entry in server.complaints()]
    assert len(said) == 1, said
    assert str(disk.root) in said[0]
    server.kill()
    with httpx.Client(base_url=server.start().url, timeout=60) as again:
        assert content(again, path) == b"before and stored " + MESSAGE * taken + b" after"


def test_new_streams_are_turned_away_too_when_there_are_very_many(
    api: httpx.Client, disk: Broken, path: str
) -> None:
    attributes = {"Stream-Attrs": '{"title": "%s"}' % ("t" * 500)}
    disk.take_away()
    for number in range(1000):
        answer = api.put(f"{path}-{number}", headers=BINARY | attributes)
        if answer.status_code != 201:
            break
    refused(answer, 503, "write_backpressure")
    assert int(answer.headers["retry-after"]) >= 1
    assert 100 < number < LIMIT / 500
    for other in range(number):
        assert api.delete(f"{path}-{other}").status_code == 204, "what ends can end"
    disk.bring_back()
    until(lambda: api.put(f"{path}-{number}", headers=BINARY | attributes).status_code == 201)


def test_nothing_is_lost_if_the_server_is_killed_while_it_is_full(
    server: Server, api: httpx.Client, disk: Broken, path: str
) -> None:
    make(api, path)
    disk.take_away()
    taken = fill(api, path)
    server.kill()
    disk.bring_back()
    with httpx.Client(base_url=server.start().url, timeout=60) as again:
        assert content(again, path) == MESSAGE * taken
        until(lambda: again.post(path, headers=BINARY, content=b"more").status_code == 204)


@pytest.mark.one_node("counts what one node says")
def test_a_start_waits_for_the_store_and_says_so(
    server: Server, api: httpx.Client, disk: Broken, path: str
) -> None:
    make(api, path, BINARY, b"stored")
    api.post("/cluster/flush").raise_for_status()
    server.stop()
    disk.take_away()
    with httpx.Client(base_url=server.start(ready=False).url, timeout=60) as again:
        until(lambda: "waiting for the store" in again.get("/readyz/local").json()["reason"])
        assert str(disk.root) in again.get("/readyz/local").json()["reason"]
        answer = again.get(path)
        refused(answer, 503, "unavailable")
        assert "waiting for the store" in answer.json()["error"]["message"]
        disk.bring_back()
        server.wait_until_ready()
        assert content(again, path) == b"stored"
    (said,) = server.complaints()
    assert "waiting for the store" in said["message"]


def test_one_append_larger_than_the_limit_is_taken_where_there_is_nothing_else(
    api: httpx.Client, path: str
) -> None:
    large = b"L" * (3 * LIMIT)
    make(api, path)
    api.post("/cluster/flush").raise_for_status()
    until(lambda: scrape_hot(scrape(api)) == 0)
    post(api, path, large)
    answer = api.post(path, headers=BINARY, content=b"small")
    while answer.status_code != 204:  # it waits its turn
        refused(answer, 503, "write_backpressure")
        time.sleep(0.02)
        answer = api.post(path, headers=BINARY, content=b"small")
    assert content(api, path) == large + b"small"


def scrape_hot(seen: Scrape) -> float:
    """How many bytes count against the limit."""
    return seen.value("ursula_write_backpressure_bytes", **HOT)
