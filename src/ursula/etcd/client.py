"""A client of all members of an etcd cluster.

Calls go to the leader's member while it answers, which saves a hop, and otherwise to any member. Every call
has a timeout of about a second: a frozen member keeps its connections open and never answers.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from aetcd import rpc

from ursula.histogram import Histogram

CALL_SECONDS = 1.0
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.02
REQUEST_BYTES_MAX = 16 << 20
"""The largest request that a member accepts: every member is started with this limit."""
MESSAGE_BYTES_MAX = 64 << 20
DURATIONS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
)
_UNREACHED = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    )
)
"""Failures that say nothing about the request: another member may answer it, or the same one later."""

logger = logging.getLogger(__name__)


class EtcdUnavailable(Exception):
    """No member has answered in time."""


class EtcdRefused(Exception):
    """A member has rejected a request, so that sending it again would not help."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"etcd answers {code.name}: {details}")
        self.code = code
        self.details = details


def is_being_cancelled() -> bool:
    """Whether this task was cancelled. Otherwise a CancelledError is that of a call, made by closing it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def connection_closed() -> grpc.aio.AioRpcError:
    """The failure of a call whose connection we have closed: it may have arrived or not."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "the connection was closed")


class CallCounts:
    """What became of the calls to a member. Watches and the renewals of leases do not count."""

    __slots__ = ("answered", "failed", "in_flight", "rejected", "seconds")

    def __init__(self) -> None:
        self.answered = 0
        self.rejected = 0
        """Answered with an error that says something about the request."""
        self.failed = 0
        """Not answered in time, or the connection failed."""
        self.in_flight = 0
        self.seconds = Histogram(DURATIONS)


class EtcdEndpoint:
    """One member of the cluster, and the calls to it."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.calls = CallCounts()
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.watch = rpc.WatchStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.cluster = rpc.ClusterStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)

    async def status(self) -> Any:
        """What the member says of itself and of the leader; None if it does not answer."""
        try:
            return await self.ask(self.maintenance.Status, rpc.StatusRequest(), CALL_SECONDS)
        except grpc.aio.AioRpcError:
            return None

    async def ask(self, method: Any, request: Any, seconds: float) -> Any:
        """Make one call; raises AioRpcError, also if the connection is closed meanwhile."""
        calls, began_at = self.calls, time.perf_counter()
        calls.in_flight += 1
        try:
            answer = await method(request, timeout=seconds)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            calls.failed += 1
            raise connection_closed() from None
        except grpc.aio.UsageError:  # it was closed before the call began
            calls.failed += 1
            raise connection_closed() from None
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHED:
                calls.failed += 1
            else:
                calls.rejected += 1
            raise
        else:
            calls.answered += 1
            return answer
        finally:
            calls.in_flight -= 1
            calls.seconds.add(time.perf_counter() - began_at)


class EtcdClient:
    """The members of one etcd cluster, by their client addresses (host:port)."""

    def __init__(self, addresses: Sequence[str], credentials: grpc.ChannelCredentials | None = None) -> None:
        self._credentials = credentials
        self.endpoints = [EtcdEndpoint(address, credentials) for address in addresses]
        self.current = self.endpoints[0]
        """Where calls go."""
        self.database_bytes = 0
        """The size of the leader's database, without the space that can be used again."""
        self.answered_at = 0.0
        """When a member last answered a call that needs a majority, by the monotonic clock."""

    async def run(self) -> None:
        """Look for the leader every second, until cancelled."""
        while True:
            await self.find_leader()
            await asyncio.sleep(LOOK_SECONDS)

    async def find_leader(self) -> EtcdEndpoint | None:
        """Send calls to the leader's member from now on; None if no member is the leader.

        A leader that was replaced may not know it, for example while its disk hangs: the latest term counts.
        """
        endpoints = tuple(self.endpoints)
        statuses = await asyncio.gather(*(endpoint.status() for endpoint in endpoints))
        found, newest = None, None
        for endpoint, status in zip(endpoints, statuses, strict=True):
            if endpoint not in self.endpoints:
                continue  # the addresses have changed meanwhile, and its connection is closed
            leads = status is not None and status.leader and status.leader == status.header.member_id
            if leads and (newest is None or status.raftTerm > newest.raftTerm):
                found, newest = endpoint, status
        if found is not None and newest is not None:
            self.current = found
            self.database_bytes = newest.dbSizeInUse or newest.dbSize
        return found

    def turn_from(self, endpoint: EtcdEndpoint) -> None:
        """Send calls elsewhere, since a member did not answer."""
        if endpoint is self.current:
            place = self.endpoints.index(endpoint) + 1 if endpoint in self.endpoints else 0
            self.current = self.endpoints[place % len(self.endpoints)]

    def note_answer(self) -> None:
        """Note that a call that needs a majority was answered just now."""
        self.answered_at = time.monotonic()

    async def call(self, method: Callable[[EtcdEndpoint], Any], request: Any, seconds: float) -> Any:
        """Make a call that may be repeated; raises EtcdUnavailable after some time, or EtcdRefused.

        `method` finds the call at a member, as in `lambda member: member.kv.Range`.
        """
        give_up_at = time.monotonic() + seconds
        while True:
            endpoint = self.current
            left = give_up_at - time.monotonic()
            try:
                answer = await endpoint.ask(method(endpoint), request, max(0.05, min(CALL_SECONDS, left)))
            except grpc.aio.AioRpcError as error:
                if error.code() not in _UNREACHED:
                    raise EtcdRefused(error.code(), error.details()) from None
                self.turn_from(endpoint)
                if time.monotonic() + PAUSE_SECONDS >= give_up_at:
                    raise EtcdUnavailable(f"no member of etcd answers: {error.details()}") from None
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.note_answer()
                return answer

    async def status_at(self, address: str) -> Any:
        """What the member at an address says of itself, in use or not; None if it does not answer."""
        known = next((endpoint for endpoint in self.endpoints if endpoint.address == address), None)
        if known is not None:
            return await known.status()
        endpoint = EtcdEndpoint(address, self._credentials)
        try:
            return await endpoint.status()
        finally:
            await endpoint.channel.close()

    async def set_addresses(self, addresses: Sequence[str]) -> None:
        """Use these members from now on."""
        known = {endpoint.address: endpoint for endpoint in self.endpoints}
        gone = [endpoint for address, endpoint in known.items() if address not in addresses]
        self.endpoints = [
            known.get(address) or EtcdEndpoint(address, self._credentials) for address in addresses
        ]
        if self.current not in self.endpoints:
            self.current = self.endpoints[0]
        for endpoint in gone:
            await endpoint.channel.close(CALL_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        with contextlib.suppress(Exception):
            await asyncio.gather(*(endpoint.channel.close() for endpoint in self.endpoints))
