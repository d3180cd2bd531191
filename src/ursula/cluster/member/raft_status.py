"""The status of etcd's members, and the transfer of leadership."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import grpc
from aetcd import rpc

from ...etcd.client import PAUSE_SECONDS, EtcdClient, EtcdRefused, EtcdUnavailable
from .member_list import ListedMember, list_without_majority

TRANSFER_SECONDS = 5.0


@dataclass(frozen=True)
class MemberStatus:
    """One member; the indexes are None if it does not answer."""

    member: ListedMember
    version: str | None
    raft_index: int | None
    applied_index: int | None
    database_bytes: int | None


@dataclass(frozen=True)
class RaftStatus:
    """The cluster as its members see it; leader and term are 0 if there is none."""

    leader: int
    term: int
    members: tuple[MemberStatus, ...]

    @property
    def voters(self) -> list[MemberStatus]:
        """The voting members."""
        return [one for one in self.members if not one.member.is_learner]

    @property
    def learners(self) -> list[MemberStatus]:
        """The members that only follow."""
        return [one for one in self.members if one.member.is_learner]

    @property
    def unanswered(self) -> "RaftStatus":
        """What remains known when no member answers any more: who the members are."""
        members = (MemberStatus(one.member, None, None, None, None) for one in self.members)
        return replace(self, leader=0, members=tuple(members))


async def raft_status(client: EtcdClient) -> RaftStatus | None:
    """Ask every member, also without a majority; None if none answers."""
    known = await list_without_majority(client)
    if known is None:
        return None
    members = await asyncio.gather(*(_ask(client, member) for member in known.members))
    # The member in the latest term knows the leader best; there may be none.
    latest = max((status for _, status in members if status is not None), key=_term, default=None)
    return RaftStatus(
        leader=0 if latest is None else latest.leader,
        term=0 if latest is None else latest.raftTerm,
        members=tuple(one for one, _ in members),
    )


async def transfer_leader(client: EtcdClient, number: int) -> None:
    """Let the voter of this number lead; raises EtcdRefused, or EtcdUnavailable if there is no leader."""
    give_up_at = time.monotonic() + TRANSFER_SECONDS
    while time.monotonic() < give_up_at:
        leader = await client.find_leader()
        if leader is None:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        try:
            request = rpc.MoveLeaderRequest(targetID=number)
            await leader.ask(leader.maintenance.MoveLeader, request, TRANSFER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise EtcdRefused(error.code(), error.details()) from None
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            await client.find_leader()
            return
    raise EtcdUnavailable("etcd has no leader that could transfer leadership")


async def _ask(client: EtcdClient, member: ListedMember) -> tuple[MemberStatus, Any]:
    for address in member.addresses:
        status = await client.status_at(address)
        if status is not None and status.header.member_id == member.number:
            answer = MemberStatus(
                member, status.version, status.raftIndex, status.raftAppliedIndex, status.dbSize
            )
            return answer, status
    return MemberStatus(member, None, None, None, None), None


def _term(status: Any) -> int:
    return int(status.raftTerm)
