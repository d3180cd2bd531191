"""The members of an etcd cluster, and the calls that change them.

Each change is one call to one member, without retries: the caller looks at the list again before it tries
again, since a call whose answer was lost may have had its effect.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import grpc
from aetcd import rpc

from ...etcd.client import CALL_SECONDS, EtcdClient, EtcdEndpoint

CHANGE_SECONDS = 2.0
"""etcd drops a change that is proposed while another one is under way, and then never answers."""


_NAME_PREFIX = "node-"


def member_name(node_id: int) -> str:
    """The name of a node's member, which has its number."""
    return f"{_NAME_PREFIX}{node_id}"


class ChangeRefused(Exception):
    """The members were not changed, as far as is known; the text is etcd's."""


@dataclass(frozen=True)
class ListedMember:
    """A member as the others know it; one that has never run has no name and no client address."""

    number: int
    name: str
    peer_urls: tuple[str, ...]
    addresses: tuple[str, ...]
    """Where clients reach it, as host:port."""
    is_learner: bool

    @property
    def node_id(self) -> int | None:
        """The node that it belongs to; None while it has no name."""
        number = self.name.removeprefix(_NAME_PREFIX)
        return int(number) if self.name.startswith(_NAME_PREFIX) and number.isdigit() else None

    def __str__(self) -> str:
        return f"{self.name or 'a member that never ran'} ({', '.join(self.peer_urls)})"


@dataclass(frozen=True)
class MemberList:
    """All members of a cluster, and the number of the cluster."""

    cluster: int
    members: tuple[ListedMember, ...]

    def find(self, number: int) -> ListedMember | None:
        """The member of this number."""
        return next((member for member in self.members if member.number == number), None)

    def voter_addresses(self) -> list[str]:
        """Where clients reach the members that answer every call: learners refuse nearly all."""
        return [address for member in self.members if not member.is_learner for address in member.addresses]


async def list_members(client: EtcdClient, seconds: float) -> MemberList:
    """The members as of now; raises EtcdUnavailable if no majority answers."""
    answer = await client.call(lambda member: partial(_list_now, member), rpc.MemberListRequest(), seconds)
    return _list_of(answer)


async def list_without_majority(client: EtcdClient) -> MemberList | None:
    """The members as any one of them knows them, which may be out of date; None if none answers."""
    for endpoint in (client.current, *client.endpoints):
        with contextlib.suppress(grpc.aio.AioRpcError):
            request = rpc.MemberListRequest()
            return _list_of(await endpoint.ask(endpoint.cluster.MemberList, request, CALL_SECONDS))
    return None


async def _list_now(member: EtcdEndpoint, request: Any, timeout: float) -> Any:
    """A list that is not older than the call: in 3.4, a member answers it from what it has applied so far."""
    await member.kv.Range(rpc.RangeRequest(key=b"\0", count_only=True), timeout=timeout)
    return await member.cluster.MemberList(request, timeout=timeout)


async def add_learner(client: EtcdClient, peer_url: str) -> tuple[ListedMember, MemberList]:
    """Add a member that follows but does not vote; returns it and all members."""
    request = rpc.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
    answer = await _change(client, lambda member: member.cluster.MemberAdd, request)
    return _member_of(answer.member), _list_of(answer)


async def remove_member(client: EtcdClient, number: int) -> None:
    """Remove a member for good: data of it is never used again."""
    await _change(client, lambda member: member.cluster.MemberRemove, rpc.MemberRemoveRequest(ID=number))


async def promote_learner(client: EtcdClient, number: int) -> None:
    """Make a learner a voter, which is refused until it is in step."""
    await _change(client, lambda member: member.cluster.MemberPromote, rpc.MemberPromoteRequest(ID=number))


async def is_alive(client: EtcdClient, member: ListedMember) -> bool:
    """Whether a process answers as this very member."""
    statuses = [await client.status_at(address) for address in member.addresses]
    return any(status is not None and status.header.member_id == member.number for status in statuses)


async def _change(
    client: EtcdClient, method: Callable[[EtcdEndpoint], Callable[..., Awaitable[Any]]], request: Any
) -> Any:
    endpoint = client.current
    try:
        return await method(endpoint)(request, timeout=CHANGE_SECONDS)
    except grpc.aio.AioRpcError as error:
        client.turn_from(endpoint)
        is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        raise ChangeRefused("etcd did not answer in time" if is_late else error.details()) from None


def _list_of(answer: Any) -> MemberList:
    return MemberList(answer.header.cluster_id, tuple(_member_of(member) for member in answer.members))


def _member_of(member: Any) -> ListedMember:
    return ListedMember(
        number=member.ID,
        name=member.name,
        peer_urls=tuple(member.peerURLs),
        addresses=tuple(urlsplit(url).netloc for url in member.clientURLs),
        is_learner=member.isLearner,
    )
