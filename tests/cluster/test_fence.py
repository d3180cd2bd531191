"""Ending the log of a cluster for a restore: it ends it, or says why not and changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aetcd import rpc
from tests.log.etcd_members import one_etcd

from ursula.cluster.failures import ClusterRefused
from ursula.cluster.fence import fence_log, note_store
from ursula.cluster.settings import key_prefix
from ursula.config import Address, ClusterSettings, ServerSettings
from ursula.etcd.client import EtcdClient, EtcdRefused, EtcdUnavailable
from ursula.log.etcd.log import EtcdLogs

pytestmark = pytest.mark.anyio

CLUSTER = ClusterSettings(name="test")
PREFIX = key_prefix(CLUSTER)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[EtcdClient]:
    """A client of an etcd that has the log of the cluster in generation 1, and knows its store."""
    with one_etcd(tmp_path) as address:
        client = EtcdClient([address])
        logs = EtcdLogs(client, PREFIX, 1, "node")
        while await client.find_leader() is None:
            await asyncio.sleep(0.02)
        await logs.create(1)
        await note_store(client, PREFIX, "the store")
        yield client
        await client.close()


async def fence(client: EtcdClient, place: str = "the store") -> None:
    host, port = client.current.address.split(":")
    own = Address(host, int(port) - 1)
    await fence_log(ServerSettings(listen=own, advertise=own), CLUSTER, place, 2, 1)


async def generation(client: EtcdClient) -> int | None:
    return await EtcdLogs(client, PREFIX, 1, "node").find_generation()


async def test_it_begins_the_log_of_the_next_generation_and_can_be_repeated(client: EtcdClient) -> None:
    await fence(client)
    await fence(client)
    assert await generation(client) == 2


async def test_it_does_not_end_the_log_of_another_store(client: EtcdClient) -> None:
    with pytest.raises(ClusterRefused, match=r"belongs to another store \(the store\), not to a copy"):
        await fence(client, "a copy")
    assert await generation(client) == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (EtcdUnavailable("no member of etcd answers: it was stopped"), "it was stopped"),
        (EtcdRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests"), "too many requests"),
    ],
)
async def test_an_etcd_that_fails_half_way_is_an_error_that_says_what_to_do(
    failure: Exception, reason: str, client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = EtcdClient.call

    async def failing(self: EtcdClient, method: Any, request: Any, seconds: float) -> Any:
        if isinstance(request, rpc.RangeRequest):  # which store the log goes with
            raise failure
        return await call(self, method, request, seconds)

    with monkeypatch.context() as patching:
        patching.setattr(EtcdClient, "call", failing)
        with pytest.raises(ClusterRefused) as refusal:
            await fence(client)
    assert reason in str(refusal.value)
    assert "restore with --take-over while they run and etcd accepts writes" in str(refusal.value)
    assert "--log-is-gone" in str(refusal.value)
    assert await generation(client) == 1


async def test_a_full_etcd_is_an_error_that_says_what_to_do(client: EtcdClient) -> None:
    status = await client.current.status()
    full = rpc.AlarmRequest(
        action=rpc.AlarmRequest.AlarmAction.ACTIVATE, memberID=status.header.member_id, alarm=rpc.NOSPACE
    )
    await client.current.maintenance.Alarm(full)
    with pytest.raises(ClusterRefused, match="database space exceeded") as refusal:
        await fence(client)
    assert "while they run and etcd accepts writes" in str(refusal.value)
    assert await generation(client) == 1
