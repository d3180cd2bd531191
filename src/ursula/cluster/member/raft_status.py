"""The status of etcd's members, and the transfer of leadership."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import grpc
from aetcd import rpc

from ...engine.status.cluster_status import RaftMember
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
    def leader_node(self) -> int | None:
        """The number of the node whose member leads, if there is one."""
        return next((one.member.node_id for one in self.members if one.member.number == self.leader), None)

    @property
    def nodes(self) -> set[int] | None:
        """The nodes that have a member, running or not; None while one has no name, since it never ran."""
        found = [one.member.node_id for one in self.members]
        known = {node for node in found if node is not None}
        return known if known and len(known) == len(found) else None

    @property
    def membership(self) -> dict[str, list[int]]:
        """The nodes whose members vote, and those whose members only follow."""
        kinds = {"voters": self.voters, "learners": self.learners}
        return {
            kind: sorted(one.member.node_id for one in members if one.member.node_id is not None)
            for kind, members in kinds.items()
        }

    @property
    def progress(self) -> dict[int, RaftMember]:
        """How far the members are that answer, by the number of their node."""
        return {
            one.member.node_id: RaftMember(one.raft_index, one.applied_index or 0, one.database_bytes or 0)
            for one in self.members
            if one.member.node_id is not None and one.raft_index is not None
        }

    @property
    def candidates(self) -> dict[int, int]:
        """The members that could lead, by node number; the most up-to-date one first."""
        voters = sorted(self.voters, key=lambda one: one.raft_index or 0, reverse=True)
        return {
            one.member.node_id: one.member.number
            for one in voters
            if one.member.node_id is not None and one.version is not None
        }

    @property
    def unanswered(self) -> "RaftStatus":
        """What remains known when no member answers any more: who the members are."""
        members = (MemberStatus(one.member, None, None, None, None) for one in self.members)
        return replace(self, leader=0, members=tuple(members))


UNKNOWN = RaftStatus(0, 0, ())
"""The status before any member has answered."""


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
