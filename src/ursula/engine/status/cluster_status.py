"""What is known of the nodes of a cluster."""

from typing import NamedTuple

import msgspec

from ...histogram import Histogram
from ..agreement import Sample
from ..peers import FlushFailure


class GroupReport(NamedTuple):
    """What a node says of one of its groups."""

    position: int
    """The last position that it has applied."""
    samples: list[Sample]
    """The newest samples of its running hash."""
    flush_failure: FlushFailure | None
    """Why it could not flush the group, if it is the keeper."""


class NodeReport(msgspec.Struct, frozen=True):
    """What a node says of itself."""

    node_id: int
    address: str
    """Where clients and other nodes reach it."""
    version: str
    member: int | None
    """The number of its etcd member, once it has one."""
    entry_version: int
    """The highest version of log entries that it reads."""
    positions: list[int]
    """The last position that it has applied, by group."""
    at: int
    """Its clock, in microseconds since 1970."""
    samples: list[list[Sample]]
    """The newest samples of its running hashes, by group."""
    flush_failures: list[FlushFailure | None] = []
    """Why it could not flush, by group, if it is the keeper."""
    heard: dict[int, tuple[int, int]] = {}
    """By node, the time in its last report, and what this clock said after reading that."""
    clock_problem: str | None = None
    """Why it does not write: its clock is wrong."""
    keeper_problem: str | None = None
    """Why it leaves the keeper's role to others for now."""


class RaftMember(msgspec.Struct, frozen=True):
    """How far the etcd member of a node is."""

    index: int
    """The last entry of etcd's log that it has."""
    applied_index: int
    database_bytes: int


class MemberCalls(NamedTuple):
    """What became of this node's calls to an etcd member."""

    address: str
    answered: int
    rejected: int
    failed: int
    in_flight: int
    seconds: Histogram


class TransferProblem(NamedTuple):
    """Why another node cannot lead."""

    reason: str
    is_request: bool
    """Whether the request was wrong, rather than the cluster unable."""
