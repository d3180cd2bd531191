"""Whether a node is a ready part of its cluster. A rolling restart waits for this."""

from typing import Protocol

from .member.raft_status import RaftStatus

CONTACT_SECONDS_MAX = 10.0
LAG_ENTRIES_MAX = 1000
"""A member that is further behind the leader's would hold up the others if one of them went away now."""


class OwnMember(Protocol):
    """This node's etcd member."""

    @property
    def number(self) -> int | None:
        """Its number, once there is one."""

    @property
    def is_voter(self) -> bool:
        """Whether it votes."""

    @property
    def problem(self) -> str | None:
        """Why its etcd does not run."""


def find_problem(member: OwnMember, raft: RaftStatus, silent_seconds: float) -> str | None:
    """Why a node is not a ready part of the cluster; no majority has answered for `silent_seconds`."""
    if silent_seconds > CONTACT_SECONDS_MAX:
        return f"etcd has not answered for {silent_seconds:.0f} s"
    if member.problem is not None:
        return f"this node's etcd does not run: {member.problem}"
    if not member.is_voter:
        return "this node's etcd member is not a voter yet"
    if not raft.leader:
        return "etcd has no leader"
    return _find_lag(raft, member.number)


def _find_lag(raft: RaftStatus, own: int | None) -> str | None:
    indexes = {one.member.number: one.raft_index for one in raft.members}
    index = indexes.get(own or 0)
    if index is None:
        return "this node's etcd does not answer"
    behind = (indexes.get(raft.leader) or 0) - index
    if behind > LAG_ENTRIES_MAX:
        return f"this node's etcd member is {behind} entries behind the leader's"
    return None
