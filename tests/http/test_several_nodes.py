"""Several nodes on one log, over HTTP: each answers with everything that any of them has acknowledged."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tests.engine.driving import until
from tests.engine.several_nodes import Cluster, Member, cluster_of
from tests.http.staged import arrow

from ursula.config import Address, ColdSettings, Settings
from ursula.engine import node as nodes
from ursula.engine.reads.deferred import Deferred
from ursula.engine.status.cluster_status import MemberCalls, NodeReport, RaftMember, TransferProblem
from ursula.http.app import App
from ursula.http.certainty import Contact
from ursula.http.live.connections import LiveConnections
from ursula.http.server import listen, services_of
from ursula.http.store_problems import fetch_deferred
from ursula.http.wire.server import WireServer
from ursula.spark.executor_store import ExecutorStore
from ursula.spark.options import S3Options
from ursula.spark.tasks.merge_segments import merge_segments

pytestmark = [pytest.mark.anyio, pytest.mark.one_node("has several nodes in its own process")]

TEXT = {"content-type": "text/plain"}
PRODUCER = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}


class KnownCluster:
    """What every node of the cluster of a test knows of it: the nodes report as they are now."""

    leader, keeper, term = 1, 1, 1
    is_leader, is_lost, problem, silent_seconds = False, False, None, 0.0
    waits_for = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.membership: dict[str, list[int]] = {"voters": [], "learners": []}
        self.raft_members: dict[int, RaftMember] = {}
        self.member_calls: list[MemberCalls] = []

    @property
    def nodes(self) -> dict[int, NodeReport]:
        return {number: self._report(node) for number, node in self._cluster.nodes.items()}

    def _report(self, node: Member) -> NodeReport:
        groups = node.group_reports()
        return NodeReport(
            node_id=node.number,
            address=f"node-{node.number}.test",
            version="",
            member=None,
            entry_version=0,
            positions=[group.position for group in groups],
            at=node.now(),
            samples=[group.samples for group in groups],
        )

    def address_of(self, node: int) -> str | None:
        return self.nodes[node].address

    async def transfer_leader(self, node: int | None) -> TransferProblem | None:
        raise NotImplementedError


@asynccontextmanager
async def serving(
    node: Member, is_local: bool = False, known: KnownCluster | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a node, which is served until the block ends; with `is_local`, as by `http.reads`."""
    settings, listener = Settings(), listen(Address("127.0.0.1", 0))
    wire = WireServer(listener, 100, settings.limits.unread_bytes, settings.http.keep_alive)
    contact = Contact(node) if is_local else None
    services = services_of(settings, node, wire, "nowhere.test", LiveConnections(), known, contact)
    node.when_restarted.append(services.live.end_all)
    tasks = [asyncio.create_task(wire.serve(App(services).handle, services.cors.lines(None), None))]
    if contact is not None:
        tasks.append(asyncio.create_task(contact.run()))
        await until(lambda: contact.problem is None)
    port = listener.getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        try:
            yield client
        finally:
            services.live.shut_down()
            await wire.stop(1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def clients_of(cluster: Cluster, is_local: bool = False) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each node."""
    async with AsyncExitStack() as stack:
        known = KnownCluster(cluster)
        yield [
            await stack.enter_async_context(serving(node, is_local, known)) for node in cluster.nodes.values()
        ]


async def is_up_to_date(client: httpx.AsyncClient, path: str) -> bool:
    """Whether a read of everything says that there is no more."""
    answer = await client.get(path, params={"offset": "-1"})
    assert answer.status_code == 200, answer.text
    return "stream-up-to-date" in answer.headers


async def controls_of(events: httpx.Response) -> AsyncIterator[dict[str, object]]:
    """The control events of a live read."""
    is_control = False
    async for line in events.aiter_lines():
        if is_control and line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))
        is_control = line == "event: control"


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error."""
    return answer.status_code, answer.json()["error"]["code"]


async def test_every_node_answers_with_what_was_acknowledged_on_another(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster, clients_of(cluster) as clients:
        assert (await clients[0].put("/chat")).status_code == 201
        for number in range(30):
            writer, reader = clients[number % 3], clients[(number + 1) % 3]
            path = f"/chat/s{number}"
            assert (await writer.put(path, headers=TEXT)).status_code == 201
            appended = await writer.post(path, headers=TEXT, content=b"hello")
            assert appended.status_code == 204
            head = await reader.head(path)
            assert head.headers["stream-next-offset"] == appended.headers["stream-next-offset"]
            read = await reader.get(path, params={"offset": "-1"})
            assert (read.content, read.headers["stream-up-to-date"]) == (b"hello", "true")
            listed = (await reader.get("/chat/streams")).json()
            assert listed["stream_count"] == number + 1
            assert (await reader.put(path, headers=TEXT)).status_code == 200, "it is there already"


async def test_a_read_that_cannot_be_certain_has_its_data_without_being_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.http.certainty.CERTAIN_SECONDS_MAX", 0.2)
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        await first.put("/chat")
        await first.put("/chat/s", headers=TEXT, content=b"hello")
        await cluster.in_step()
        cluster.is_unreachable = True
        read = await second.get("/chat/s", params={"offset": "-1"})
        assert (read.status_code, read.content) == (200, b"hello")
        assert "stream-up-to-date" not in read.headers
        assert read.headers["cache-control"] == "no-store", "the next read from there may have more"
        again = await second.get("/chat/s", params={"offset": read.headers["stream-next-offset"]})
        assert (again.status_code, again.json()["error"]["code"]) == (503, "unavailable")
        assert (await second.get("/chat/nothing", params={"offset": "-1"})).status_code == 503
        assert (await second.head("/chat/s")).status_code == 503
        for bytes_max in ("2", "100"):
            query = {"offset": "-1", "live": "sse", "max_bytes": bytes_max}
            live = await second.get("/chat/s", params=query)
            assert live.status_code == 503, "sooner or later it would say that it is up to date"
        cluster.is_unreachable = False
        certain = await second.get("/chat/s", params={"offset": "-1"})
        assert certain.headers["stream-up-to-date"] == "true"


async def test_a_bucket_that_another_node_has_just_created_is_known(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        for number in range(10):
            bucket = f"bucket-{number}"
            assert (await first.put(f"/{bucket}")).status_code == 201
            listed = (await second.get("/cluster/buckets")).json()["buckets"]
            assert len(listed) == number + 1
            staged = await second.post(f"/cluster/staging?bucket={bucket}", content=arrow([("s", b"v")]))
            assert staged.status_code == 201, staged.text


async def test_a_fork_with_a_body_knows_a_source_of_another_node(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        for number in range(10):
            source, fork = f"/v1/stream/source-{number}", f"/v1/stream/fork-{number}"
            json = {"content-type": "application/json"}
            assert (await first.put(source, headers=json, content=b"[1,2]")).status_code == 201
            made = await second.put(fork, headers={"stream-forked-from": source}, content=b"[3]")
            assert made.status_code == 201, made.text
            assert (await first.get(fork, params={"offset": "-1"})).json() == [1, 2, 3]


async def test_a_long_poll_and_events_see_what_other_nodes_write(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        path = "/v1/stream/live"
        made = await first.put(path, headers=TEXT)
        offset = made.headers["stream-next-offset"]
        polling = asyncio.create_task(second.get(path, params={"offset": offset, "live": "long-poll"}))
        async with second.stream("GET", path, params={"offset": "-1", "live": "sse"}) as events:
            await until(lambda: len(cluster.nodes[1].group.watchers) == 2)
            await first.post(path, headers=TEXT, content=b"news")
            assert (await polling).content == b"news"
            lines = events.aiter_lines()
            async with asyncio.timeout(30):
                while "news" not in await anext(lines):
                    pass


async def test_a_node_that_starts_again_ends_its_live_reads_and_serves_on(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        path = "/v1/stream/live"
        await first.put(path, headers=TEXT)
        await cluster.in_step()
        async with second.stream("GET", path, params={"offset": "-1", "live": "sse"}) as events:
            await until(lambda: len(cluster.nodes[1].group.watchers) == 1)
            cluster.nodes[1].connection.is_cut_off = True
            cluster.memory.bytes_max = 0
            for _ in range(3):
                await first.post(path, headers=TEXT, content=b"news")
                assert (await first.post("/cluster/flush")).status_code == 200
            cluster.nodes[1].connection.is_cut_off = False
            received = [line async for line in events.aiter_lines()]
        assert not any("news" in line for line in received), "it ended at an event boundary"
        await until(lambda: cluster.nodes[1].recovered)
        assert (await second.get(path, params={"offset": "-1"})).content == b"newsnewsnews"


async def test_a_node_that_the_others_contradict_answers_nothing_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "AGREEMENT_SECONDS", 0.01)
    async with cluster_of(3, tmp_path) as cluster, clients_of(cluster) as clients:
        path, wrong = "/v1/stream/known", clients[2]
        await clients[0].put(path, headers=TEXT, content=b"before")
        await cluster.in_step()
        assert (await wrong.get("/readyz/local")).status_code == 200
        cluster.is_corrupted = True
        stream = cluster.nodes[2].group.state.find("_default", "known")
        assert stream is not None
        stream.messages.add((b"never written",))
        async with wrong.stream("GET", path, params={"offset": "-1", "live": "sse"}) as events:
            await until(lambda: len(cluster.nodes[2].group.watchers) == 1)
            assert (await clients[0].post(path, headers=TEXT, content=b"after")).status_code == 204
            await until(lambda: bool(cluster.disagreements))
            async for _ in events.aiter_lines():
                pass  # until it ends
        answers = [
            await wrong.get(path, params={"offset": "0"}),
            await wrong.get(path, params={"offset": "-1"}),
            await wrong.post(path, headers=TEXT, content=b"more"),
            await wrong.post(path, headers=TEXT | PRODUCER, content=b"more"),
            await wrong.put("/v1/stream/other", headers=TEXT),
            await wrong.delete(path),
            await wrong.get("/_default/streams"),
            await wrong.get("/_default/feed"),
            await wrong.get("/cluster/buckets"),
            await wrong.post("/cluster/flush"),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
            assert "is not that of most other nodes" in answer.json()["error"]["message"]
        assert (await wrong.head(path)).status_code == 503
        ready = await wrong.get("/readyz/local")
        assert (ready.status_code, ready.json()["reason"]) == (503, cluster.disagreements[2])
        assert (await wrong.get("/cluster/status")).json()["disagreement"] == cluster.disagreements[2]
        assert "ursula_log_disagreement" in (await wrong.get("/metrics")).text
        for client in clients[:2]:
            assert (await client.get(path, params={"offset": "-1"})).content == b"beforeafter"
            assert (await client.get("/readyz/local")).status_code == 200
            assert (await client.get("/cluster/status")).json()["disagreement"] is None


async def test_the_status_says_on_every_node_how_far_each_is_behind(tmp_path: Path) -> None:
    async with cluster_of(3, tmp_path) as cluster, clients_of(cluster) as clients:
        path, behind = "/v1/stream/known", cluster.nodes[2]

        async def statuses() -> list[dict[str, Any]]:
            return [(await client.get("/cluster/status")).json() for client in clients]

        def lags(status: dict[str, Any]) -> list[int]:
            return [node["lag"] for node in status["nodes"]]

        await clients[0].put(path, headers=TEXT)
        await cluster.in_step()
        for status in await statuses():
            assert lags(status) == [0, 0, 0]
        known = behind.group.applied
        behind.connection.is_silent = True
        for _ in range(5):
            assert (await clients[0].post(path, headers=TEXT, content=b"more")).status_code == 204
        ahead = cluster.nodes[0].group.applied
        await until(lambda: cluster.nodes[1].group.applied == ahead)
        for status in await statuses():
            assert lags(status) == [0, 0, ahead - known]
            assert status["last_log_index"] == status["groups"][0]["last_log_index"] == ahead
        assert [status["last_applied_index"] for status in await statuses()] == [ahead, ahead, known]
        behind.connection.is_silent = False
        await cluster.in_step()
        for status in await statuses():
            assert lags(status) == [0, 0, 0]


async def test_the_status_does_not_guess_how_far_a_node_is_that_loads_its_state(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, _):
        await first.put("/v1/stream/known", headers=TEXT)
        assert (await first.post("/cluster/flush")).status_code == 200
        loading = asyncio.Event()

        async def wait_for_loading() -> None:
            await loading.wait()

        cluster.before_state = wait_for_loading
        starting = asyncio.create_task(cluster.start(2))
        await until(lambda: 2 in cluster.nodes)
        assert [node["lag"] for node in (await first.get("/cluster/status")).json()["nodes"]] == [0, 0, None]
        loading.set()
        await starting
        await cluster.in_step()
        assert [node["lag"] for node in (await first.get("/cluster/status")).json()["nodes"]] == [0, 0, 0]


async def test_a_node_that_is_cut_off_says_nothing_of_the_tail(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        path = "/v1/stream/known"
        await first.put(path, headers=TEXT, content=b"before")
        await cluster.in_step()
        cluster.nodes[1].connection.is_cut_off = True
        answer = await second.get(path, params={"offset": "-1"})
        assert (answer.content, "stream-up-to-date" in answer.headers) == (b"before", False)
        assert (await second.head(path)).status_code == 503
        cluster.nodes[1].connection.is_cut_off = False
        assert (await second.get(path, params={"offset": "-1"})).content == b"before"


async def test_a_local_read_is_answered_from_what_its_node_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.http.certainty.CERTAIN_SECONDS_MAX", 0.2)
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster, is_local=True) as (first, second):
        await first.put("/chat")
        await first.put("/chat/s", headers=TEXT, content=b"old")
        await first.put("/chat/s/attrs", json={"title": "old"})
        await cluster.in_step()
        behind = cluster.nodes[1].connection
        behind.is_silent = True
        await first.post("/chat/s", headers=TEXT, content=b"new")
        await first.put("/chat/s/attrs", json={"title": "new"})
        await first.put("/chat/unknown", headers=TEXT)
        await first.put("/more")
        read = await second.get("/chat/s", params={"offset": "-1"})
        assert (read.content, read.headers["stream-up-to-date"]) == (b"old", "true")
        head = await second.head("/chat/s")
        assert int(head.headers["stream-next-offset"]) == 3
        assert (await second.get("/chat/s/attrs")).json() == {"title": "old"}
        assert (await second.get("/chat/s/bootstrap")).headers["stream-next-offset"] == "3".zfill(20)
        assert (await second.get("/chat/streams")).json()["stream_count"] == 1
        assert (await second.get("/chat")).json()["streams"] == 1
        assert len((await second.get("/cluster/buckets")).json()["buckets"]) == 1
        feed = await second.get("/chat", params={"offset": "-1"})
        assert (feed.text.count("\n"), feed.headers["stream-up-to-date"]) == (3, "true")
        unknown = [
            second.get("/chat/unknown", params={"offset": "-1"}),
            second.get("/chat/s", params={"offset": "6"}),
            second.get("/chat/unknown/attrs"),
            second.get("/more/streams"),
            second.get("/cluster/plan?bucket=chat"),
        ]
        for answer in await asyncio.gather(*unknown):
            assert problem_of(answer) == (503, "unavailable"), "it may have been written on another node"
        behind.is_silent = False
        await cluster.in_step()
        assert (await second.get("/chat/s", params={"offset": "-1"})).content == b"oldnew"
        nothing = await second.get("/chat/nothing", params={"offset": "-1"})
        assert problem_of(nothing) == (404, "stream_not_found")


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_local_read_says_that_it_is_up_to_date_only_while_its_node_is_in_contact(
    is_silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ursula.http.certainty.CONTACT_SECONDS_MAX", 0.5)
    monkeypatch.setattr("ursula.http.certainty.ASK_SECONDS", 0.05)
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster, is_local=True) as (first, second):
        path, connection = "/v1/stream/s", cluster.nodes[1].connection
        await first.put(path, headers=TEXT, content=b"known")
        snapshot = "/_default/s/snapshot/" + "5".zfill(20)
        assert (await first.put(snapshot + "?trim=false", content=b"{}")).status_code == 204
        await cluster.in_step()
        assert await is_up_to_date(second, path)
        end = {"offset": "5"}
        async with second.stream("GET", path, params=end | {"live": "sse"}) as events:
            controls = controls_of(events)
            assert "upToDate" in await anext(controls)
            # The log answers no questions, or it does and nothing of it comes through.
            connection.is_silent, cluster.is_unreachable = is_silent, not is_silent
            assert (await first.post(path, headers=TEXT, content=b"new")).status_code == 204
            async with asyncio.timeout(30):
                while await is_up_to_date(second, path):
                    await asyncio.sleep(0.01)
            if not is_silent:
                await anext(controls)
                await first.post(path, headers=TEXT, content=b"newer")
                assert "upToDate" not in await anext(controls)
            for url in (snapshot, "/_default/s/bootstrap"):
                answer = await second.get(url)
                assert (answer.status_code, "stream-up-to-date" in answer.headers) == (200, False)
            feed = await second.get("/_default", params={"offset": "-1"})
            assert (feed.status_code, "stream-up-to-date" in feed.headers) == (200, False)
            assert (await second.head(path)).status_code == 200
            now = {"offset": "now"}
            for query in (now, now | {"live": "long-poll"}, now | {"live": "sse"}):
                for target in (path, "/_default"):
                    answer = await second.get(target, params=query)
                    assert problem_of(answer) == (503, "unavailable"), "there is nothing to say for certain"
            connection.is_silent = cluster.is_unreachable = False
            async with asyncio.timeout(30):
                while not await is_up_to_date(second, path):
                    await asyncio.sleep(0.01)


Calls = list[tuple[str, str, dict[str, Any]]]


class Behind(NamedTuple):
    """A request to a node that has not applied yet what another one has acknowledged."""

    meanwhile: Calls
    """What the other node acknowledges. Both know a stream /chat/s with the two bytes "ab" by then."""
    method: str
    path: str
    options: dict[str, Any]
    is_right: Callable[[httpx.Response], bool]


def made_again(content_type: str, content: bytes) -> Calls:
    """The stream is another one now."""
    made = {"headers": {"content-type": content_type}, "content": content}
    return [("DELETE", "/chat/s", {}), ("PUT", "/chat/s", made)]


MORE: Calls = [("POST", "/chat/s", {"headers": TEXT, "content": b"cd"})]
NEW: Calls = [("PUT", "/chat/new", {"headers": TEXT, "content": b"new"})]
JSON_AGAIN = made_again("application/json", b"[1,2,3]")
SNAPSHOT: Calls = [*MORE, ("PUT", "/chat/s/snapshot/" + "4".zfill(20) + "?trim=false", {"content": b"{}"})]
FORK = {"stream-forked-from": "/chat/s"}
BEHIND = {
    "head": Behind(MORE, "HEAD", "/chat/s", {}, lambda it: it.headers["stream-next-offset"][-1] == "4"),
    "read": Behind(MORE, "GET", "/chat/s?offset=-1", {}, lambda it: it.content == b"abcd"),
    "read at the tail": Behind(MORE, "GET", "/chat/s?offset=2", {}, lambda it: it.content == b"cd"),
    "read of a new stream": Behind(NEW, "GET", "/chat/new?offset=-1", {}, lambda it: it.content == b"new"),
    "read beyond the tail": Behind(MORE, "GET", "/chat/s?offset=4", {}, lambda it: it.status_code == 200),
    "read of a deleted stream": Behind(
        [("DELETE", "/chat/s", {})], "GET", "/chat/s?offset=-1", {}, lambda it: it.status_code in (404, 410)
    ),
    "last records": Behind(
        [*JSON_AGAIN, ("POST", "/chat/s", {"json": [4, 5]})],
        "GET",
        "/chat/s?tail_records=2&max_bytes=1",
        {},
        lambda it: it.content.startswith(b"4"),
    ),
    "long-poll": Behind(MORE, "GET", "/chat/s?offset=2&live=long-poll", {}, lambda it: it.content == b"cd"),
    "append to a new stream": Behind(
        NEW, "POST", "/chat/new", {"headers": TEXT, "content": b"x"}, lambda it: it.status_code == 204
    ),
    "append to a closed stream": Behind(
        [("POST", "/chat/s", {"headers": {"stream-closed": "true"}})],
        "POST",
        "/chat/s",
        {"headers": TEXT, "content": b"x"},
        lambda it: it.status_code == 409,
    ),
    "creation of a deleted stream": Behind(
        [("DELETE", "/chat/s", {})], "PUT", "/chat/s", {"headers": TEXT}, lambda it: it.status_code == 201
    ),
    "delete": Behind(NEW, "DELETE", "/chat/new", {}, lambda it: it.status_code == 204),
    "attributes": Behind(
        [("PUT", "/chat/s/attrs", {"json": {"title": "x"}})],
        "GET",
        "/chat/s/attrs",
        {},
        lambda it: it.json() == {"title": "x"},
    ),
    "attributes of a new stream": Behind(
        NEW, "PUT", "/chat/new/attrs", {"json": {"title": "x"}}, lambda it: it.status_code == 204
    ),
    "bootstrap": Behind(MORE, "GET", "/chat/s/bootstrap", {}, lambda it: b"cd" in it.content),
    "find a snapshot": Behind(SNAPSHOT, "GET", "/chat/s/snapshot", {}, lambda it: it.status_code == 307),
    "snapshot": Behind(
        SNAPSHOT, "GET", "/chat/s/snapshot/" + "4".zfill(20), {}, lambda it: it.content == b"{}"
    ),
    "publish a snapshot": Behind(
        JSON_AGAIN,
        "PUT",
        "/chat/s/snapshot/" + "0".zfill(20),
        {"content": b"{}"},
        lambda it: it.status_code == 204,
    ),
    "retention": Behind(
        [
            *made_again("text/plain", b"ef"),
            ("PUT", "/chat/s/snapshot/" + "2".zfill(20) + "?trim=false", {"content": b"{}"}),
        ],
        "PUT",
        "/chat/s/retention/" + "2".zfill(20),
        {},
        lambda it: it.status_code == 204,
    ),
    "fork with a body": Behind(
        JSON_AGAIN,
        "PUT",
        "/chat/fork",
        {"headers": FORK, "content": b"[4,5]"},
        lambda it: it.headers.get("stream-record-next") == "5",
    ),
    "fork at an offset": Behind(
        made_again("text/plain", b"efgh"),
        "PUT",
        "/chat/fork",
        {"headers": FORK | {"stream-fork-offset": "2"}},
        lambda it: it.status_code == 201,
    ),
    "feed": Behind(MORE, "GET", "/chat?offset=-1", {}, lambda it: '"cd"' in it.text),
    "end of the feed": Behind(
        [("PUT", "/chat-more", {})],
        "GET",
        "/chat-more?offset=now",
        {},
        lambda it: it.status_code == 200,
    ),
    "bucket": Behind(NEW, "GET", "/chat", {}, lambda it: it.json()["streams"] == 2),
    "streams": Behind(NEW, "GET", "/chat/streams", {}, lambda it: it.json()["stream_count"] == 2),
    "buckets": Behind(
        [("PUT", "/chat-more", {})],
        "GET",
        "/cluster/buckets?limit=1000",
        {},
        lambda it: '"chat-more"' in it.text,
    ),
    "plan": Behind(
        MORE,
        "GET",
        "/cluster/plan?bucket=chat",
        {},
        lambda it: sum(one["rows"] for one in it.json()["hot"]) == 3,
    ),
    "staging": Behind(
        [("PUT", "/chat-more", {})],
        "POST",
        "/cluster/staging?bucket=chat-more",
        {"content": arrow([("s", b"v")])},
        lambda it: it.status_code == 201,
    ),
    "delete a bucket": Behind(
        [("DELETE", "/chat/s", {})], "DELETE", "/chat", {}, lambda it: it.status_code == 204
    ),
    "undelete": Behind(
        [("DELETE", "/chat/s", {})],
        "POST",
        "/cluster/undelete",
        {"json": {"bucket": "chat", "stream": "s"}},
        lambda it: it.status_code == 200,
    ),
}


@pytest.mark.parametrize("is_local", [False, True])
async def test_a_node_that_is_behind_answers_with_what_another_has_acknowledged(
    is_local: bool, tmp_path: Path
) -> None:
    depends_on_a_write = ("POST", "PUT", "DELETE")
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster, is_local) as (first, second):
        node, wrong = cluster.nodes[1], {}
        behind = node.connection
        for name, case in BEHIND.items():
            if is_local and case.method not in depends_on_a_write and name != "plan":
                continue
            await first.put("/chat")
            assert (await first.put("/chat/s", headers=TEXT, content=b"ab")).status_code == 201
            await cluster.in_step()
            behind.is_silent = True
            for method, path, options in case.meanwhile:
                assert (await first.request(method, path, **options)).is_success, (name, path)
            asked = behind.tail_calls
            answering = asyncio.create_task(second.request(case.method, case.path, **case.options))
            await until(
                lambda: behind.tail_calls > asked or node.group.has_unfinished or answering.done()  # noqa: B023
            )
            behind.is_silent = False
            answer = await answering
            if not case.is_right(answer):
                wrong[name] = answer.status_code, answer.text
            for stream in ("s", "new", "fork"):
                await first.delete(f"/chat/{stream}")
            await first.delete("/chat")
            await first.delete("/chat-more")
        assert wrong == {}


async def test_a_bulk_write_that_another_node_has_done_needs_its_objects_no_more(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        behind = cluster.nodes[1].connection
        await first.put("/chat")
        staged = await first.post("/cluster/staging?bucket=chat", content=arrow([("s", b"v")]))
        await cluster.in_step()
        objects = [staged.json()["object"]]
        body = {"bucket": "chat", "app": "job", "version": 1, "objects": objects}
        behind.is_silent = True
        assert (await first.post("/cluster/ingest", json=body)).status_code == 200
        await cluster.open_store().delete(objects)
        asked = behind.tail_calls
        answering = asyncio.create_task(second.post("/cluster/ingest", json=body))
        await until(lambda: behind.tail_calls > asked or answering.done())
        behind.is_silent = False
        assert (await answering).status_code == 200, (await answering).text


async def test_segments_that_a_node_does_not_know_yet_are_replaced_there(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        behind = cluster.nodes[1].connection
        await first.put("/chat")
        await first.put("/chat/s", headers=TEXT)
        await cluster.in_step()
        behind.is_silent = True
        for text in (b"ab", b"cd"):
            await first.post("/chat/s", headers=TEXT, content=text)
            assert (await first.post("/cluster/flush")).status_code == 200
        old = (await first.get("/cluster/plan?bucket=chat")).json()["segments"]
        paths, store = [one["path"] for one in old], ExecutorStore(str(tmp_path / "cold"), S3Options())
        merged = merge_segments(store, 0, old[0]["first"], old[-1]["last"], paths)
        asked, body = behind.tail_calls, {"group": 0, "old": paths, "new": [merged.path]}
        answering = asyncio.create_task(second.post("/cluster/replace-segments", json=body))
        await until(lambda: behind.tail_calls > asked or answering.done())
        behind.is_silent = False
        assert (await answering).status_code == 200, (await answering).text
        new = (await first.get("/cluster/plan?bucket=chat")).json()["segments"]
        assert [one["path"] for one in new] == [merged.path]


class HeldFetch:
    """Replaces `fetch_deferred`: reads from the store wait until they are let go, but for the first ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.waiting = -free
        self.go = asyncio.Event()
        for module in ("exchange", "live.long_poll"):
            monkeypatch.setattr(f"ursula.http.{module}.fetch_deferred", self._fetch)

    async def _fetch(self, deferred: Deferred[Any]) -> Any:
        self.waiting += 1
        if self.waiting > 0:
            await self.go.wait()
        return await fetch_deferred(deferred)


@pytest.mark.parametrize(
    ("path", "live", "free", "is_dropping"),
    [
        ("/v1/stream/live", "sse", 0, False),
        ("/v1/stream/live", "sse", 1, True),
        ("/_default", "sse", 1, False),
        ("/_default", "long-poll", 0, False),
    ],
)
async def test_a_live_read_that_fetches_while_its_node_starts_again_is_sent_back(
    path: str, live: str, free: int, is_dropping: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "RESTART_SECONDS", 0.01)
    stream, large = "/v1/stream/live", b"x" * (2 << 20)
    cold = ColdSettings(cache_bytes=0)
    async with cluster_of(2, tmp_path, cold) as cluster, clients_of(cluster) as (first, second):
        node = cluster.nodes[1]
        await first.put(stream, headers=TEXT, content=b"old")
        assert (await first.post("/cluster/flush")).status_code == 200
        await until(lambda: isinstance(node.group.read("_default", "live", 0, 100), Deferred))
        held, closing = HeldFetch(monkeypatch, free), asyncio.Event()
        offset = "-1" if live == "sse" else "now"
        reading = asyncio.create_task(second.get(path, params={"offset": offset, "live": live}))
        if live == "long-poll":
            await until(lambda: len(node.group.watchers) == 1)
            await first.post(stream, headers=TEXT, content=large)
        await until(lambda: held.waiting == 1)
        close = node.connection.close

        async def close_later() -> None:
            await closing.wait()
            await close()

        monkeypatch.setattr(node.connection, "close", close_later)
        node.connection.is_cut_off = True
        cluster.memory.bytes_max = 0
        for _ in range(3):
            await first.post(stream, headers=TEXT, content=b"new")
            assert (await first.post("/cluster/flush")).status_code == 200
        node.connection.is_cut_off = False
        await until(lambda: not node.recovered)
        if is_dropping:
            held.go.set()
            await reading
        closing.set()
        await until(lambda: node.recovered)
        held.go.set()
        assert problem_of(await reading) == (503, "unavailable"), "no event would ever come"
        async with second.stream("GET", path, params={"offset": "-1", "live": "sse"}) as events:
            lines = events.aiter_lines()
            async with asyncio.timeout(30):
                while "new" not in await anext(lines):
                    pass
