"""The interface of the engine: everything that the HTTP layer may use.

Commands go in; outcomes, pages and numbers come out. None of these values refers to the state of a group, so
that a group could answer from another process or another node.
"""

from collections.abc import Sequence
from typing import Protocol

from ..cold.blobs import Blobs, BlobWriter
from ..histogram import Histogram
from ..model.commands import AnyCommand, Append, IngestBegin
from ..model.outcomes import (
    AnyOutcome,
    BucketDescription,
    Description,
    FeedPage,
    Listing,
    Page,
    RecordPage,
    Refused,
)
from .failures import Failure
from .group.batching import Reply
from .group.watchers import Watchers
from .reads.bucket_plan import Plan
from .reads.deferred import Deferred
from .status.cluster_status import MemberCalls, NodeReport, RaftMember, TransferProblem
from .status.cold_status import CacheStatus, ColdStatus, UpkeepStatus
from .status.group_status import GroupStatus
from .status.hot_bytes import HotBytesReport, HotTotals


class GroupApi(Protocol):
    """The streams of some buckets: commands change them, and reads see the applied state."""

    number: int
    watchers: Watchers
    disagreement: str | None
    """Why this node must not serve the group; None if it may."""

    # Writing

    def propose(
        self, command: AnyCommand, done: Reply, size: int = 0, json_problem: str | None = None
    ) -> None:
        """Have a command decided; `done` gets its outcome."""

    async def propose_and_wait(
        self, command: AnyCommand, size: int | None = None, json_problem: str | None = None
    ) -> AnyOutcome | Failure:
        """Propose a command and wait for its outcome."""

    def append_fast(self, command: Append, done: Reply, size: int) -> bool:
        """Have a plain append decided if there is nothing unusual about it; otherwise return False."""

    # Waiting until the applied state is current

    @property
    def is_current(self) -> bool:
        """Whether the applied state has everything acknowledged anywhere, as far as this node knows."""

    async def current(self) -> None:
        """Wait until everything acknowledged before now is applied; NotCurrent if that cannot be known."""

    def is_overdue(self, bucket: str, name: str) -> bool:
        """Whether the stream's deadline has passed and its end is not applied yet."""

    async def end_overdue(self, bucket: str, name: str) -> AnyOutcome | Failure:
        """End a stream whose deadline has passed."""

    # Reading

    def read(
        self,
        bucket: str,
        name: str,
        offset: int,
        bytes_max: int,
        whole: bool = False,
        incarnation: str | None = None,
    ) -> Page | Refused | Deferred[Page]:
        """A range of a stream."""

    def read_records(
        self,
        bucket: str,
        name: str,
        record: int | None,
        tail_records: int | None,
        records_max: int,
        bytes_max: int,
        incarnation: str | None = None,
        offset: int | None = None,
    ) -> RecordPage | Refused | Deferred[RecordPage]:
        """Messages of a JSON stream by their ordinals."""

    def read_feed(
        self, bucket: str, after: int | None, until: int | None, bytes_max: int
    ) -> FeedPage | Refused | Deferred[FeedPage]:
        """The rows of a bucket's feed after a position."""

    def note_read(self, bucket: str, name: str) -> None:
        """Renew the TTL of a stream, since it was read."""

    def describe(self, bucket: str, name: str, incarnation: str | None = None) -> Description | Refused:
        """The description of a stream."""

    def describe_bucket(self, bucket: str) -> BucketDescription | Refused:
        """The description of a bucket."""

    def list_streams(self, bucket: str, prefix: str, after: str, count: int) -> Listing | Refused:
        """A page of a bucket's streams."""

    def plan(self, bucket: str, after: int | None) -> Plan | Refused:
        """Where the history of a bucket is, after a position."""


class NodeApi(Protocol):
    """All groups of a node, and everything that they share."""

    cluster: str
    generation: int
    feed_incarnation: str
    group_count: int
    recovered: bool
    blobs: Blobs

    def group_of(self, bucket: str) -> GroupApi:
        """The group that owns a bucket."""

    async def current(self) -> None:
        """Wait until every group has applied everything acknowledged before now; see `GroupApi.current`."""

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""

    def rewound_to(self, group: int, position: int) -> int | None:
        """The position that a restore went back to, if that is before this position."""

    def forget_blob(self, key: str) -> None:
        """Remove a blob that was stored for nothing, since no command names it."""

    # Bulk reads and writes

    @property
    def store_root(self) -> str:
        """Where the objects of the store are, for readers that fetch them themselves."""

    async def stage(self, bucket: str, writer: BlobWriter) -> str:
        """Store a file of rows for a bulk write; returns the key of the object."""

    async def ingest(self, command: IngestBegin, patience_seconds: float) -> AnyOutcome | Failure:
        """Begin or continue a bulk write; returns its progress when it ends or after `patience_seconds`."""

    async def replace_segments(self, group: int, old: Sequence[str], new: str) -> AnyOutcome | Failure:
        """Replace neighbouring segments with one that has their rows."""

    # Requests of operators

    async def flush(self) -> list[int] | Failure:
        """Flush everything that was written until now; returns the position of each group."""

    async def request_base(self) -> Refused | Failure | None:
        """Request a flush soon that writes the whole state."""

    async def purge_log(self) -> list[int]:
        """Trim the logs to the newest manifests; returns where each log now begins."""

    # Status for operators

    load_seconds: Histogram
    """How long it took to load the state of a group from the store, each time."""

    @property
    def is_keeper(self) -> bool:
        """Whether this node is the keeper."""

    @property
    def progress(self) -> float:
        """How much of all logs has been replayed, from 0 to 1."""

    @property
    def busy_with(self) -> str:
        """Why a node has not recovered yet."""

    @property
    def recovery_seconds(self) -> float:
        """How long the start took, or has taken so far."""

    @property
    def log_problem(self) -> str | None:
        """Why a log does not accept entries."""

    @property
    def disagreement(self) -> str | None:
        """Why this node must not serve a group: its state contradicts that of other nodes."""

    @property
    def hot_bytes_max(self) -> int:
        """How many bytes may be hot before writes are rejected."""

    @property
    def flush_interval_seconds(self) -> float:
        """How long written data may wait to be flushed."""

    def now(self) -> int:
        """The time as this node sees it, in microseconds since 1970."""

    def statuses(self) -> list[GroupStatus]:
        """The status of every group; there are none before the logs are open."""

    def cold_statuses(self) -> list[ColdStatus]:
        """The status of every group's part of the store."""

    def cache_statuses(self) -> dict[str, CacheStatus]:
        """The status of the caches of stored data, by kind."""

    def upkeep_status(self) -> UpkeepStatus:
        """How much was fetched from the store, merged and collected since the start."""

    async def hot_totals(self) -> HotTotals:
        """All bytes in memory, and how many streams are parked."""

    async def report_hot_bytes(self) -> HotBytesReport:
        """Which streams the bytes in memory belong to."""


class ClusterApi(Protocol):
    """The cluster that a node is a part of, or joins."""

    waits_for: str
    """What a node that has not joined yet waits for."""

    @property
    def leader(self) -> int | None:
        """The number of the node whose member leads, if there is one."""

    @property
    def is_leader(self) -> bool:
        """Whether this node's member leads."""

    @property
    def term(self) -> int:
        """How often a leader was elected; 0 if that is unknown."""

    @property
    def keeper(self) -> int | None:
        """The number of the node that was last seen to be the keeper."""

    @property
    def membership(self) -> dict[str, list[int]]:
        """The nodes whose members vote, and those whose members only follow."""

    @property
    def nodes(self) -> dict[int, NodeReport]:
        """The nodes that are there, by number."""

    @property
    def is_lost(self) -> bool:
        """Whether etcd has not answered for so long that this node must not be relied upon."""

    @property
    def problem(self) -> str | None:
        """Why this node is not a ready part of the cluster."""

    def address_of(self, node: int) -> str | None:
        """Where a node is reached, if it is there."""

    @property
    def raft_members(self) -> dict[int, RaftMember]:
        """How far the etcd members are that answer, by the number of their node."""

    @property
    def member_calls(self) -> list[MemberCalls]:
        """What became of this node's calls to each etcd member."""

    @property
    def silent_seconds(self) -> float:
        """For how long no majority of etcd has answered."""

    async def transfer_leader(self, node: int | None) -> TransferProblem | None:
        """Transfer leadership to a node, or to any other node; returns why that failed."""
