"""Several nodes' members in one process, each with its own etcd; what a store would decide is in memory."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from aetcd import rpc
from tests.etcd import etcd_path, free_ports

from ursula.cluster.member.etcd_folder import EtcdFolder
from ursula.cluster.member.etcd_program import find_program
from ursula.cluster.member.member import Member
from ursula.cluster.member.member_list import ChangeRefused, remove_member
from ursula.cluster.member.member_settings import MemberSettings
from ursula.cluster.tls import choose_tls
from ursula.etcd.client import EtcdClient, EtcdUnavailable

SECONDS = 60.0


class Claim:
    """What the store decides: the first attempt to ask begins the cluster, and no other ever."""

    def __init__(self) -> None:
        self.attempt: str | None = None

    async def may_begin(self, attempt: str) -> bool:
        self.attempt = self.attempt or attempt
        return self.attempt == attempt


class BenchNode:
    """A node that can be started, stopped, killed and wiped."""

    def __init__(self, bench: "MemberBench", settings: MemberSettings) -> None:
        self.settings = settings
        self.folder = bench.path / settings.name
        self._bench = bench
        self._task: asyncio.Task[None] | None = None
        self._member: Member | None = None

    @property
    def member(self) -> Member:
        """The running member."""
        assert self._member is not None
        return self._member

    async def start(self) -> None:
        """Start it, without waiting for anything."""
        folder = EtcdFolder(self.folder)
        settings = self.settings
        tls = choose_tls(None, self._bench.secret, [settings.advertise_host], folder.tls)
        program = find_program(etcd_path())
        self._member = Member(settings, program, folder, tls, self._bench.claim.may_begin)
        self._task = asyncio.create_task(self._member.run())

    async def stop(self) -> None:
        """Stop it in order."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def kill_etcd(self) -> None:
        """`kill -9` of its etcd."""
        process = self.member._supervisor.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    async def kill(self) -> None:
        """End its etcd as `kill -9` of the server does, and then the rest."""
        self.kill_etcd()
        await self.stop()

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.folder)

    async def until_voter(self) -> None:
        """Wait until its member votes; a node that fails says why."""
        await self.until(lambda: self.member.is_voter)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true of it."""
        async with asyncio.timeout(SECONDS):
            while not condition():
                if self._task is not None and self._task.done():
                    failed, self._task = self._task, None
                    await failed
                    return
                await asyncio.sleep(0.02)


class MemberBench:
    """The nodes of one cluster; node 1 is the bootstrap node."""

    def __init__(self, path: Path, count: int, secret: str = "") -> None:
        self.path = path
        self.secret = secret
        self.claim = Claim()
        self.nodes: list[BenchNode] = []
        for _ in range(count):
            self.add_node()
        for node in self.nodes:  # those that were made first know of the later ones too
            others = (other.settings.address for other in self.nodes if other is not node)
            node.settings = replace(node.settings, others=tuple(others))

    def add_node(self) -> BenchNode:
        """A further node, which is not running yet and knows of the earlier ones."""
        client, peer = free_ports(2)
        settings = MemberSettings(
            node_id=len(self.nodes) + 1,
            cluster_name="test",
            listen_host="127.0.0.1",
            advertise_host="127.0.0.1",
            client_port=client,
            peer_port=peer,
            others=tuple(node.settings.address for node in self.nodes),
            is_bootstrap=not self.nodes,
        )
        self.nodes.append(BenchNode(self, settings))
        return self.nodes[-1]


@asynccontextmanager
async def bench(path: Path, count: int, secret: str = "") -> AsyncIterator[MemberBench]:
    """Nodes that are not running yet; those that run at the end are stopped."""
    made = MemberBench(path, count, secret)
    try:
        yield made
    finally:
        await asyncio.gather(*(node.stop() for node in made.nodes))


@asynccontextmanager
async def running(path: Path, count: int) -> AsyncIterator[MemberBench]:
    """Nodes whose members all vote."""
    async with bench(path, count) as made:
        for node in made.nodes:
            await node.start()
        for node in made.nodes:
            await node.until_voter()
        yield made


async def put(client: EtcdClient, key: str, seconds: float = SECONDS) -> None:
    """Write a key."""
    request = rpc.PutRequest(key=key.encode(), value=b"1")
    await client.call(lambda member: member.kv.Put, request, seconds)


async def keys(client: EtcdClient) -> set[str]:
    """All keys as of now."""
    request = rpc.RangeRequest(key=b"\0", range_end=b"\0", keys_only=True)
    answer = await client.call(lambda member: member.kv.Range, request, SECONDS)
    return {one.key.decode() for one in answer.kvs}


class Writer:
    """Writes keys one after the other, and notes those that were acknowledged, and the longest wait."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self.acknowledged: set[str] = set()
        self.longest_seconds = 0.0

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        number = 0
        while True:
            began = clock()
            with suppress(EtcdUnavailable):
                await put(self._client, f"k{number}", 5.0)
                self.acknowledged.add(f"k{number}")
            self.longest_seconds = max(self.longest_seconds, clock() - began)
            number += 1
            await asyncio.sleep(0.005)


@asynccontextmanager
async def writing(client: EtcdClient) -> AsyncIterator[Writer]:
    """Write all the time; at the end, nothing that was acknowledged is missing."""
    writer = Writer(client)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert writer.acknowledged <= await keys(client)


async def remove(client: EtcdClient, number: int | None) -> None:
    """Remove a member, which etcd refuses until its members have known each other for some seconds."""
    assert number is not None
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(ChangeRefused):
                return await remove_member(client, number)
            await asyncio.sleep(0.2)


async def stays_silent(node: BenchNode, seconds: float) -> bool:
    """Whether the etcd of a node answers nobody for a while."""
    give_up_at = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < give_up_at:
        if await node.member.client.status_at(node.settings.address) is not None:
            return False
        await asyncio.sleep(0.1)
    return True
