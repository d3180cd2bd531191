"""The reports that the nodes of a cluster exchange.

Each one keeps a key that disappears when it is gone. Which version of log entries it reads is in a key of its
own that stays: a node that is down during an upgrade must be able to read the log when it comes back.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
from aetcd import rpc

from ..engine.agreement import Sample
from ..engine.peers import FlushFailure, Peers
from ..engine.status.cluster_status import NodeReport
from ..etcd.client import CALL_SECONDS, EtcdClient, EtcdRefused, EtcdUnavailable
from ..etcd.lease import Lease
from .clock_check import ClockCheck

PUBLISH_SECONDS = 1.0
PAUSE_RATIO_MIN = 0.7
"""Nodes publish at random intervals: in lockstep, each would always read old reports."""
DOUBT_SECONDS = 0.5
"""How often it looks while its own clock is in doubt."""

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NodeReport).decode


class Presence(Peers):
    """Publishes what this node says of itself, and reads what the others say."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        lease: Lease,
        report: Callable[[], NodeReport],
        clocks: ClockCheck,
        *,
        versions_prefix: str,
        members: Callable[[], Collection[int] | None],
    ) -> None:
        """`members` are the nodes that belong to the cluster, running or not; None if that is unknown."""
        super().__init__()
        self._client = client
        self._prefix = prefix.encode()
        self._lease = lease
        self._report = report
        self._own = report().node_id
        self.nodes: dict[int, NodeReport] = {}
        """The nodes that are there, by number, as last read."""
        self._clocks = clocks
        self._versions_prefix = versions_prefix.encode()
        self._members = members
        self._has_published_version = False

    def samples(self, group: int) -> dict[str, list[Sample]]:
        """The newest samples of a group on the other nodes, by the number of the node."""
        return {
            str(node): report.samples[group]
            for node, report in self.nodes.items()
            if node != self._own and group < len(report.samples)
        }

    def flush_failure(self, group: int) -> FlushFailure | None:
        """Why another node, which is the keeper, could not flush a group when it last tried."""
        failures = (
            report.flush_failures[group]
            for node, report in self.nodes.items()
            if node != self._own and group < len(report.flush_failures)
        )
        return next(filter(None, failures), None)

    @property
    def write_problem(self) -> str | None:
        """Why this node must not write to the log for now: its clock is wrong, or has just jumped ahead."""
        self._clocks.look()
        if self._clocks.is_doubted:
            return "the clock of this node is still being compared with those of the other nodes: retry"
        return self._clocks.problem

    async def wait_for_clock_check(self) -> None:
        """Exchange reports until this clock cannot be far ahead of the others, or is proven to be."""
        while self._clocks.is_doubted:
            await asyncio.sleep(DOUBT_SECONDS)
            await self.exchange()

    def _note_reports(self, reports: dict[int, NodeReport]) -> None:
        """Compare the clocks, and say what is known now."""
        self.nodes = reports
        clocks = self._clocks
        had_problem, was_doubted = clocks.problem is not None, clocks.is_doubted
        clocks.note(reports)
        if clocks.problem is None:
            if had_problem or (was_doubted and not clocks.is_doubted):
                logger.info("the clock of this node is right")
        elif not had_problem:
            logger.error("this node writes nothing: %s", clocks.problem)

    async def run(self) -> None:
        """Publish and read every second, until cancelled; more often while the own clock is in doubt."""
        while True:
            try:
                await self.exchange()
            except (EtcdUnavailable, EtcdRefused) as error:
                logger.debug("this node's report was not published: %s", error)
            seconds = DOUBT_SECONDS if self._clocks.is_doubted else PUBLISH_SECONDS
            await asyncio.sleep(random.uniform(PAUSE_RATIO_MIN, 1.0) * seconds)

    async def exchange(self) -> None:
        """Publish this node's report, and read those of all nodes."""
        if not self._lease.is_held:
            raise EtcdUnavailable("this node has no lease in etcd")
        report = self._report()
        put = rpc.PutRequest(
            key=self._prefix + b"%d" % report.node_id, value=_encode(report), lease=self._lease.id
        )
        range_ = rpc.RangeRequest(key=self._prefix, range_end=self._prefix[:-1] + b"0")
        versions = rpc.RangeRequest(key=self._versions_prefix, range_end=self._versions_prefix[:-1] + b"0")
        operations = [
            rpc.RequestOp(request_put=put),
            rpc.RequestOp(request_range=range_),
            rpc.RequestOp(request_range=versions),
        ]
        if not self._has_published_version:
            key = self._versions_prefix + b"%d" % report.node_id
            put = rpc.PutRequest(key=key, value=b"%d" % report.entry_version)
            operations.insert(0, rpc.RequestOp(request_put=put))
        request = rpc.TxnRequest(success=operations)
        answer = await self._client.call(lambda member: member.kv.Txn, request, CALL_SECONDS)
        self._has_published_version = True
        *_, published_reports, published_versions = answer.responses
        found = {}
        for one in published_reports.response_range.kvs:
            try:
                published = _decode(one.value)
            except msgspec.MsgspecError as error:  # of a version that publishes something else
                logger.debug("the report of a node cannot be read: %s", error)
                continue
            found[published.node_id] = published
        self._note_reports(found)
        versions_read = [one.entry_version for one in found.values()]
        versions_read += self._versions_of_members(published_versions.response_range.kvs)
        self.entry_version = min([report.entry_version, *versions_read])

    def _versions_of_members(self, published: Iterable[rpc.KeyValue]) -> Iterator[int]:
        """The versions that members read, also those that are down: they must read what is written now."""
        members = self._members()
        for one in published:
            if members is None or int(one.key.removeprefix(self._versions_prefix)) in members:
                yield int(one.value)
