"""This node's part in a cluster: its etcd member, the log that all share, and what nodes tell each other.

A node joins in this order: its member is created, the store names the cluster and generation, and the log in
etcd must match. Only then is the node created.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TypeVar

from ..cold.objects.store import Store, StoreUnavailable
from ..cold.state.manifest import Generation
from ..config import ClusterSettings, ServerSettings
from ..engine.clock import Clock, system_clock
from ..engine.peers import Peers
from ..engine.start.data_folder import FORMAT, Identity
from ..engine.start.heartbeat import place_of
from ..engine.status.cluster_status import GroupReport, MemberCalls, NodeReport, RaftMember, TransferProblem
from ..etcd.client import EtcdRefused, EtcdUnavailable
from ..log.etcd.log import KEPT_BYTES, EtcdLog, EtcdLogs
from ..log.interface import LogUnavailable
from ..model.codec.entry import ENTRY_VERSION
from .clock_check import ClockCheck
from .failures import ClusterRefused
from .fence import note_store
from .keeper_check import KeeperCheck
from .keeper_lease import KeeperLease
from .member.etcd_folder import EtcdFolder
from .member.etcd_program import find_program
from .member.member import Member
from .member.raft_status import UNKNOWN, raft_status, transfer_leader
from .presence import Presence
from .readiness import CONTACT_SECONDS_MAX, find_problem
from .settings import key_prefix, member_settings, tls_files
from .store_generation import find_generations, has_entries, may_begin_etcd

RETRY_SECONDS = 0.5
STATUS_SECONDS = 1.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Cluster:
    """A node's part in a cluster, from its start to its end."""

    def __init__(
        self,
        server: ServerSettings,
        cluster: ClusterSettings,
        store: Store,
        clock: Clock = system_clock,
        kept_bytes: int | None = None,
    ) -> None:
        """Raises ClusterRefused if this machine or the settings do not allow it.

        `kept_bytes` is how much of the recent log stays when it is trimmed; None stands for the usual amount.
        """
        self._server = server
        self._settings = cluster
        self._store = store
        self._clock = clock
        self._kept_bytes = KEPT_BYTES if kept_bytes is None else kept_bytes
        self._clocks = ClockCheck(server.node_id, clock)
        folder = EtcdFolder(server.data_dir / "etcd")
        settings = member_settings(server, cluster)
        tls = tls_files(server, cluster, folder.tls)
        self.member = Member(settings, find_program(cluster.etcd_path), folder, tls, self._may_begin)
        self._prefix = key_prefix(cluster)
        self._node = f"{server.node_id}-{secrets.token_hex(4)}"
        self._keeper_check = KeeperCheck()
        self.role = KeeperLease(self.member.client, self._node, self._find_keeper_problem)
        self.waits_for = "its etcd member"
        """What a node that has not joined yet waits for."""
        self._logs: EtcdLogs | None = None
        self._presence: Presence | None = None
        self._group_reports: Callable[[], list[GroupReport]] = list
        self.raft = UNKNOWN
        """What etcd's members last said of themselves."""
        self._tasks: list[asyncio.Task[None]] = []
        self._member_task: asyncio.Task[None] | None = None

    # From start to end

    async def join(self, own: Identity | None) -> Identity:
        """Become part of the cluster; returns which one it is. Waits for the others as long as it takes.

        `own` is what this node was part of before.
        """
        self._member_task = asyncio.create_task(self.member.run())
        self._tasks = [asyncio.create_task(self._poll_status())]
        logs, newest = await self._until_done(lambda: self._enter(own), "the cluster")
        self._logs = logs
        peers = Presence(
            self.member.client,
            f"{logs.keys.prefix}nodes/",
            logs.lease,
            self._report,
            self._clocks,
            versions_prefix=f"{self._prefix}versions/",
            members=lambda: self.raft.nodes,
        )
        self._presence = peers
        claiming = self.role.run(f"{logs.keys.prefix}keeper".encode())
        self._tasks += [asyncio.create_task(one) for one in (logs.run(), claiming)]
        await self._until_done(peers.exchange, "etcd")  # before anything is written that others cannot read
        await self._until_done(peers.wait_for_clock_check, "etcd")
        self._tasks.append(asyncio.create_task(peers.run()))
        return Identity(FORMAT, newest.cluster, newest.generation, newest.groups)

    async def run(self, on_lost: Callable[[], None], group_reports: Callable[[], list[GroupReport]]) -> None:
        """Watch over the cluster until cancelled; raises the error of a part that must not end.

        `on_lost` is called when etcd has not answered for so long that live reads must end. `group_reports`
        says what this node publishes of its groups.
        """
        self._group_reports = group_reports
        tasks = [*self._tasks, *(() if self._member_task is None else (self._member_task,))]
        was_lost = False
        while not any(task.done() for task in tasks):
            await asyncio.wait(tasks, timeout=RETRY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            is_lost = self.is_lost
            if is_lost != was_lost:
                was_lost = is_lost
                logger.warning("etcd %s", "does not answer" if is_lost else "answers again")
                if is_lost:
                    on_lost()
        for task in tasks:
            if task.done():
                task.result()

    async def leave(self) -> None:
        """Give up what other nodes would wait for: leadership and the keeper's role."""
        await asyncio.gather(self._hand_over(), self.role.close())

    async def close(self) -> None:
        """Stop this node's etcd."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._logs is not None:
            await self._logs.close()
        if self._member_task is not None:
            self._member_task.cancel()
            await asyncio.gather(self._member_task, return_exceptions=True)

    @property
    def peers(self) -> Peers | None:
        """The other nodes, once this one has joined."""
        return self._presence

    def open_log(self, group: int) -> EtcdLog:
        """The log of a group."""
        if self._logs is None:
            raise RuntimeError("the node has not joined the cluster")
        return EtcdLog(self._logs, group)

    # What it knows

    @property
    def nodes(self) -> dict[int, NodeReport]:
        """The nodes that are there, by number."""
        return {} if self._presence is None else self._presence.nodes

    @property
    def leader(self) -> int | None:
        """The number of the node whose member leads, if there is one."""
        return self.raft.leader_node

    @property
    def term(self) -> int:
        """How often a leader was elected; 0 if that is unknown."""
        return self.raft.term

    @property
    def is_leader(self) -> bool:
        """Whether this node's member leads."""
        return self.leader == self._server.node_id

    def address_of(self, node: int) -> str | None:
        """Where a node is reached, if it is there."""
        report = self.nodes.get(node)
        return None if report is None else report.address

    @property
    def silent_seconds(self) -> float:
        """For how long no majority of etcd has answered."""
        return time.monotonic() - self.member.client.answered_at

    @property
    def is_lost(self) -> bool:
        """Whether etcd has not answered for so long that this node must not be relied upon."""
        return self.silent_seconds > CONTACT_SECONDS_MAX

    @property
    def problem(self) -> str | None:
        """Why this node is not a ready part of the cluster."""
        return find_problem(self.member, self.raft, self.silent_seconds)

    @property
    def keeper(self) -> int | None:
        """The number of the node that was last seen to be the keeper."""
        return None if self.role.keeper is None else int(self.role.keeper.partition("-")[0])

    @property
    def membership(self) -> dict[str, list[int]]:
        """The nodes whose members vote, and those whose members only follow."""
        return self.raft.membership

    @property
    def raft_members(self) -> dict[int, RaftMember]:
        """How far the etcd members are that answer, by the number of their node."""
        return self.raft.progress

    @property
    def member_calls(self) -> list[MemberCalls]:
        """What became of this node's calls to each etcd member."""
        found = []
        for endpoint in self.member.client.endpoints:
            calls = endpoint.calls
            found.append(
                MemberCalls(
                    address=endpoint.address,
                    answered=calls.answered,
                    rejected=calls.rejected,
                    failed=calls.failed,
                    in_flight=calls.in_flight,
                    seconds=calls.seconds,
                )
            )
        return found

    async def transfer_leader(self, node: int | None) -> TransferProblem | None:
        """Transfer leadership to a node, or to any other node; returns why that failed."""
        voters = self.raft.candidates
        if node is not None and node not in voters:
            return TransferProblem(f"node {node} has no voting member that answers", is_request=True)
        if node is not None and node == self.leader:
            return None
        others = [node] if node is not None else [other for other in voters if other != self.leader]
        if not others:
            return TransferProblem("no other node could lead", is_request=False)
        try:
            await transfer_leader(self.member.client, voters[others[0]])
        except (EtcdRefused, EtcdUnavailable) as error:
            return TransferProblem(str(error), is_request=False)
        await self._ask_members()
        return None

    # Joining

    async def _may_begin(self, attempt: str) -> bool:
        """Whether an etcd begins here."""
        name, groups = self._settings.name, self._settings.groups
        return await self._until_done(
            lambda: may_begin_etcd(self._store, attempt, name, groups, self._clock()), "the store"
        )

    async def _find_generations(self) -> list[Generation]:
        """What the store says: the first node of the cluster has written it before its member began."""
        found = await find_generations(self._store, self._settings.name)
        if not found:
            raise LogUnavailable(f"node {self._settings.bootstrap_node_id} has not begun the cluster yet")
        return found

    async def _enter(self, own: Identity | None) -> tuple[EtcdLogs, Generation]:
        """Find the generation that the store is in, and enter its log.

        Each attempt asks the store again: a restore may begin or end meanwhile.
        """
        generations = await self._find_generations()
        newest = generations[-1]
        if own is not None:
            self._check_is_not_gone(own.generation, generations)
        logs = EtcdLogs(
            self.member.client,
            self._prefix,
            newest.generation,
            self._node,
            log_bytes_max=self._settings.log_bytes,
            kept_bytes=self._kept_bytes,
        )
        await self._enter_log(logs, generations)
        return logs, newest

    async def _enter_log(self, logs: EtcdLogs, generations: list[Generation]) -> None:
        """Check that the log in etcd is that of the store; the log of a new generation is begun.

        An etcd without a log is a new one, since nobody begins an etcd twice for the same generation. So
        nothing can be lost by beginning the log, unless the store already has something from it. A restore
        ends the log of the generation before, or was told that it is gone, before it begins another one.
        """
        store, newest, found = self._store.root, generations[-1], await logs.find_generation()
        if found is None:
            if (newest.generation > 1 and not newest.log_is_gone) or await has_entries(self._store, newest):
                raise ClusterRefused(
                    f"the store {store} has data, and etcd has no log that goes with it: put etcd's folders "
                    "back, or make a new cluster from the store with `ursula restore --log-is-gone`"
                )
            await logs.create(newest.groups)
        elif found > newest.generation:
            raise LogUnavailable(
                f"a restore of the store {store} to generation {found} was begun and not finished: run "
                "`ursula restore --take-over` again"
            )
        elif found < newest.generation:
            self._check_is_not_gone(found, generations)
            # A restore was killed after it created the generation, and the next one was not.
            await logs.create(newest.groups, instead_of=found)
        await logs.forget_earlier(newest.groups)
        await note_store(self.member.client, self._prefix, await place_of(self._store))

    def _check_is_not_gone(self, own: int, generations: list[Generation]) -> None:
        """Refuse to use an etcd with a log that the operator gave up: the cluster begins another etcd."""
        if any(one.log_is_gone for one in generations if one.generation > own):
            raise ClusterRefused(
                f"the store {self._store.root} was restored to generation {generations[-1].generation} "
                f"because the log of the cluster was gone, and this node still has its etcd of generation "
                f"{own}: stop all such nodes, move their data folders away, and start them again"
            )

    async def _until_done(self, work: Callable[[], Awaitable[T]], name: str) -> T:
        """Do some work as soon as store and etcd allow it, as long as this node's member does not fail.

        An etcd that refuses the work is waited for too: it is full, for example, until somebody makes room.
        """
        while True:
            if self._member_task is not None and self._member_task.done():
                self._member_task.result()  # raises why the node cannot have a member
            try:
                return await work()
            except (StoreUnavailable, LogUnavailable, EtcdUnavailable, EtcdRefused) as error:
                self._wait_for(name, error)
            await asyncio.sleep(RETRY_SECONDS)

    def _wait_for(self, name: str, error: Exception) -> None:
        text = f"{name}: {error}"
        if self.waits_for != text:
            logger.info("waiting for %s", text)
        self.waits_for = text

    # While it runs

    def _report(self) -> NodeReport:
        groups = self._group_reports()
        return NodeReport(
            node_id=self._server.node_id,
            address=str(self._server.advertise),
            version=version("ursula"),
            member=self.member.number,
            entry_version=ENTRY_VERSION,
            positions=[group.position for group in groups],
            at=self._clocks.begin_report(),
            samples=[group.samples for group in groups],
            flush_failures=[group.flush_failure for group in groups],
            heard=dict(self._clocks.heard),
            clock_problem=self._clocks.problem,
            keeper_problem=self.role.problem,
        )

    def _find_keeper_problem(self) -> str | None:
        """Why this node must leave the keeper's role to others for now."""
        others = (report for node, report in self.nodes.items() if node != self._server.node_id)
        failures = (group.flush_failure.reason for group in self._group_reports() if group.flush_failure)
        return self._keeper_check.find_problem(
            None if self._presence is None else self._presence.write_problem,
            next(failures, None),
            others=any(report.keeper_problem is None for report in others),
        )

    async def _ask_members(self) -> None:
        """Ask etcd's members how they are."""
        found = await raft_status(self.member.client)
        self.raft = found or self.raft.unanswered

    async def _poll_status(self) -> None:
        """Ask etcd's members how they are, until cancelled."""
        while True:
            await self._ask_members()
            await asyncio.sleep(STATUS_SECONDS)

    async def _hand_over(self) -> None:
        """Transfer leadership, if this node's member leads and another one can."""
        await self._ask_members()
        if self.is_leader:
            problem = await self.transfer_leader(None)
            if problem is None:
                logger.info("node %s is the leader now", self.leader)
            else:
                logger.info("leadership was not transferred: %s", problem.reason)
