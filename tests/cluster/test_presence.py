"""What nodes know of each other: the version of entries that all can read, also those that are down."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.log.etcd_members import EtcdMember, etcd_members

from ursula.cluster.clock_check import ClockCheck
from ursula.cluster.presence import Presence
from ursula.engine.clock import system_clock
from ursula.engine.status.cluster_status import NodeReport
from ursula.etcd.client import EtcdClient
from ursula.etcd.lease import Lease

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with etcd_members(1, tmp_path_factory.mktemp("etcd")) as (member,):
        yield member


async def test_entries_are_written_for_members_that_are_down_and_not_for_removed_ones(
    member: EtcdMember,
) -> None:
    client = EtcdClient([member.address])
    members: set[int] | None
    tasks = []

    async def start(number: int, version: int) -> tuple[Presence, Lease]:
        lease = Lease(client, 15)
        tasks.append(asyncio.create_task(lease.run()))
        async with asyncio.timeout(30):
            while not lease.is_held:
                await asyncio.sleep(0.01)

        def report() -> NodeReport:
            return NodeReport(number, "", "", number, version, [], system_clock(), [])

        clocks = ClockCheck(number, system_clock)
        presence = Presence(
            client, "nodes/", lease, report, clocks, versions_prefix="versions/", members=lambda: members
        )
        await presence.exchange()
        return presence, lease

    members = set()
    new, _ = await start(1, 9)
    assert new.entry_version == 9, "alone, before etcd lists its own member"
    members = None
    old, lease = await start(2, 5)
    await new.exchange()
    assert (old.entry_version, new.entry_version) == (5, 5)
    tasks.pop().cancel()
    await lease.close()
    for known in (None, {1, 2}):
        members = known
        await new.exchange()
        assert (set(new.nodes), new.entry_version) == ({1}, 5), "it comes back and must read what is written"
    members = {1}
    await new.exchange()
    assert new.entry_version == 9, "it was removed"
    members = {1, 2}
    upgraded, _ = await start(2, 8)
    await new.exchange()
    assert (upgraded.entry_version, new.entry_version) == (8, 8)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
