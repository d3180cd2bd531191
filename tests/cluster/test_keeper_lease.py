"""Who is the keeper: one node at a time, and none that has given the role up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

import pytest
from aetcd import rpc
from tests.log.etcd_members import EtcdMember, etcd_members

from ursula.cluster.keeper_lease import TRY_SECONDS, KeeperLease
from ursula.etcd.client import EtcdClient

pytestmark = pytest.mark.anyio

_keys = count()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with etcd_members(1, tmp_path_factory.mktemp("etcd")) as (member,):
        yield member


@asynccontextmanager
async def candidate(
    client: EtcdClient, key: bytes, name: str, find_problem: Callable[[], str | None] = lambda: None
) -> AsyncIterator[KeeperLease]:
    role = KeeperLease(client, name, find_problem)
    running = asyncio.create_task(role.run(key))
    try:
        yield role
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_who_gives_the_role_up_does_not_take_it_again(member: EtcdMember) -> None:
    client, key = EtcdClient([member.address]), b"keeper-%d" % next(_keys)
    async with AsyncExitStack() as stack:
        wrong = await stack.enter_async_context(candidate(client, key, "1-a"))
        await until(lambda: wrong.is_held)
        other = await stack.enter_async_context(candidate(client, key, "2-b"))
        await until(lambda: other.keeper == "1-a")
        wrong.give_up()
        assert not wrong.is_held
        await until(lambda: other.is_held)
        await until(lambda: wrong.keeper == "2-b")
        await other.close()
        for _ in range(3):
            await asyncio.sleep(TRY_SECONDS)
            found = await client.call(lambda one: one.kv.Range, rpc.RangeRequest(key=key), 5)
            assert [one.value for one in found.kvs] == []
        third = await stack.enter_async_context(candidate(client, key, "3-c"))
        await until(lambda: third.is_held)
    await client.close()


async def test_who_cannot_do_the_work_leaves_the_role_to_others_and_may_take_it_again(
    member: EtcdMember,
) -> None:
    client, key = EtcdClient([member.address]), b"keeper-%d" % next(_keys)
    problem: str | None = "the disk is full"
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(candidate(client, key, "1-a", lambda: problem))
        await until(lambda: first.problem == "the disk is full")
        second = await stack.enter_async_context(candidate(client, key, "2-b"))
        await until(lambda: second.is_held)
        await second.close()
        problem = None
        await until(lambda: first.is_held)
        third = await stack.enter_async_context(candidate(client, key, "3-c"))
        await until(lambda: third.keeper == "1-a")
        problem = "the clock is ahead"
        await until(lambda: third.is_held)
        assert not first.is_held
        await until(lambda: first.keeper == "3-c")
    await client.close()
