"""The reports that the nodes of a cluster exchange.

Each one keeps a key that disappears when it is gone. Which version of log entries it reads is in a key of its
own that stays: a node that is down during an upgrade must be able to read the log when it comes back.
"""

import asyncio
import logging
import random
import time
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
DOUBT_SECONDS_MAX = 5.0

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

    async def wait_for_clock_check(self) -> None:
        """Exchange reports until this clock cannot be far ahead of the others, or is proven to be."""
        give_up_at = time.monotonic() + DOUBT_SECONDS_MAX
        while self._clocks.is_doubtful and self.write_problem is None and time.monotonic() < give_up_at:
            await asyncio.sleep(PUBLISH_SECONDS / 2)
            await self.exchange()

    def _note_clock_problem(self) -> None:
        problem = self._clocks.problem
        if problem is not None and self.write_problem is None:
            logger.error("this node writes nothing: %s", problem)
        elif problem is None and self.write_problem is not None:
            logger.info("the clock of this node is right again")
        self.write_problem = problem

    async def run(self) -> None:
        """Publish and read every second, until cancelled."""
        while True:
            try:
                await self.exchange()
            except (EtcdUnavailable, EtcdRefused) as error:
                logger.debug("this node's report was not published: %s", error)
            await asyncio.sleep(random.uniform(PAUSE_RATIO_MIN, 1.0) * PUBLISH_SECONDS)

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
        self.nodes = found
        self._clocks.note(found)
        self._note_clock_problem()
        versions_read = [one.entry_version for one in found.values()]
        versions_read += self._versions_of_members(published_versions.response_range.kvs)
        self.entry_version = min([report.entry_version, *versions_read])

    def _versions_of_members(self, published: Iterable[rpc.KeyValue]) -> Iterator[int]:
        """The versions that members read, also those that are down: they must read what is written now."""
        members = self._members()
        for one in published:
            if members is None or int(one.key.removeprefix(self._versions_prefix)) in members:
                yield int(one.value)
