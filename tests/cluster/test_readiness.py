"""Each reason why a node is not a ready part of its cluster."""

from types import SimpleNamespace

import pytest

from ursula.cluster.member.member_list import ListedMember
from ursula.cluster.member.raft_status import UNKNOWN, MemberStatus, RaftStatus
from ursula.cluster.readiness import CONTACT_SECONDS_MAX, LAG_ENTRIES_MAX, find_problem


def raft(own: int | None, leader: int | None = 5000, leads: int = 2) -> RaftStatus:
    members = [
        MemberStatus(ListedMember(number, f"node-{number}", (), (), False), "3.5.16", index, index, 0)
        for number, index in ((1, own), (2, leader))
    ]
    return RaftStatus(leads, 3, tuple(members))


@pytest.mark.parametrize(
    ("status", "silent_seconds", "given", "problem"),
    [
        (raft(5000), 0, {}, None),
        (raft(5000 - LAG_ENTRIES_MAX), 0, {}, None),
        (raft(5001), 0, {}, None),
        (raft(5000, None), 0, {}, None),
        (raft(5000 - LAG_ENTRIES_MAX - 1), 0, {}, "member is 1001 entries behind the leader's"),
        (raft(None), 0, {}, "this node's etcd does not answer"),
        (raft(5000), CONTACT_SECONDS_MAX + 1, {}, "etcd has not answered for 11 s"),
        (raft(5000), 0, {"problem": "killed"}, "this node's etcd does not run: killed"),
        (raft(5000), 0, {"is_voter": False}, "this node's etcd member is not a voter yet"),
        (raft(5000, leads=0), 0, {}, "etcd has no leader"),
        (UNKNOWN, 0, {}, "etcd has no leader"),
    ],
)
def test_a_problem_is_named(
    status: RaftStatus, silent_seconds: float, given: dict[str, object], problem: str | None
) -> None:
    member = SimpleNamespace(**{"number": 1, "is_voter": True, "problem": None, **given})
    found = find_problem(member, status, silent_seconds)
    assert found == problem or (problem is not None and found is not None and problem in found)
