"""Several nodes on one log, over HTTP: each answers with everything that any of them has acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.engine.driving import until
from tests.engine.several_nodes import Cluster, Member, cluster_of
from tests.http.staged import arrow

from ursula.config import Address, Settings
from ursula.http.app import App
from ursula.http.server import listen, services_of
from ursula.http.wire.server import WireServer

pytestmark = pytest.mark.anyio

TEXT = {"content-type": "text/plain"}


@asynccontextmanager
async def serving(node: Member) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a node, which is served until the block ends."""
    settings, listener = Settings(), listen(Address("127.0.0.1", 0))
    wire = WireServer(listener, 100, settings.limits.unread_bytes, settings.http.keep_alive)
    services = services_of(settings, node, wire, "nowhere.test")
    node.on_restart = services.live.end_all
    task = asyncio.create_task(wire.serve(App(services).handle, services.cors.lines(None), None))
    port = listener.getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        try:
            yield client
        finally:
            services.live.shut_down()
            await wire.stop(1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def clients_of(cluster: Cluster) -> AsyncIterator[list[httpx.AsyncClient]]:
    """A client of each node."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serving(node)) for node in cluster.nodes.values()]


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


async def test_reads_at_the_tail_are_unavailable_on_a_node_that_is_cut_off(tmp_path: Path) -> None:
    async with cluster_of(2, tmp_path) as cluster, clients_of(cluster) as (first, second):
        path = "/v1/stream/known"
        await first.put(path, headers=TEXT, content=b"before")
        await cluster.in_step()
        cluster.nodes[1].connection.is_cut_off = True
        answer = await second.get(path, params={"offset": "-1"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert (await second.head(path)).status_code == 503
        cluster.nodes[1].connection.is_cut_off = False
        assert (await second.get(path, params={"offset": "-1"})).content == b"before"
