"""`server.write_only_leader`: a node whose member does not lead sends writes to the one that does."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.http.in_process import serving

from ursula.http.leader_only import LeaderOnly
from ursula.http.routes import ROUTES, Route

pytestmark = pytest.mark.one_node("is served in the process of the test")

ANYWHERE = {"/cluster/staging", "/cluster/replace-segments", "/cluster/flush", "/cluster/trigger-snapshot"}
ANYWHERE |= {"/cluster/purge-log", "/cluster/transfer-leader"}
"""What any node accepts, although it is a POST."""


@pytest.fixture
def cluster() -> SimpleNamespace:
    """A cluster that another node leads."""
    addresses = {2: "leader.test:4437"}
    return SimpleNamespace(is_leader=False, leader=2, address_of=addresses.get)


@pytest.fixture
def api(cluster: Any, tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        serving(tmp_path, LeaderOnly(cluster).check) as place,
        httpx.Client(base_url=f"http://{place.host}:{place.port}", timeout=60) as client,
    ):
        yield client


def ask(api: httpx.Client, route: Route) -> httpx.Response:
    path = route.path.format(bucket="chat", stream="a b", offset="0" * 20).replace(" ", "%20")
    return api.request(route.method, path, params={"x": "1"}, json={})


def test_a_write_to_a_stream_or_a_bucket_is_sent_to_the_leader_and_nothing_else(api: httpx.Client) -> None:
    sent = {(route.method, route.path) for route in ROUTES if ask(api, route).status_code == 307}
    writes = [route for route in ROUTES if route.method not in ("GET", "HEAD")]
    assert sent == {(route.method, route.path) for route in writes if route.path not in ANYWHERE}
    assert {("POST", "/cluster/ingest"), ("POST", "/cluster/undelete")} <= sent
    assert {route.path for route in writes} > ANYWHERE


def test_the_leader_is_named_with_the_path_and_the_query(api: httpx.Client) -> None:
    for path in ("/chat/a%20b?x=1", "/cluster/ingest?x=1"):
        answer = api.post(path, json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (307, "not_leader")
        assert answer.headers["location"] == f"http://leader.test:4437{path}"


def test_without_a_leader_a_write_is_unavailable(api: httpx.Client, cluster: SimpleNamespace) -> None:
    for leader in (None, 3):  # 3 leads, and is not there
        cluster.leader = leader
        for path in ("/chat/s", "/cluster/undelete"):
            answer = api.post(path, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_the_leader_takes_writes_itself(api: httpx.Client, cluster: SimpleNamespace) -> None:
    cluster.is_leader = True
    assert api.put("/chat").status_code == 201
    missing = api.post("/cluster/undelete", json={"bucket": "chat", "stream": "s"})
    assert missing.status_code == 404
