"""A lease: its keys disappear soon after their process."""

import asyncio
import logging
import time

import grpc
from aetcd import rpc

from .client import CALL_SECONDS, EtcdClient, EtcdRefused, EtcdUnavailable, is_being_cancelled

RENEWALS = 4
"""How often a lease is renewed while it lasts."""

logger = logging.getLogger(__name__)


class Lease:
    """A lease that is renewed until it is closed, and granted again if it was lost."""

    def __init__(self, client: EtcdClient, seconds: int) -> None:
        self._client = client
        self._seconds = seconds
        self.id = 0
        """Its number; 0 while there is none. A lost lease is followed by one with another number."""
        self._lasts_until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether the lease certainly exists. The clock of this node counts from before it was renewed."""
        return self.id != 0 and time.monotonic() < self._lasts_until

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        while True:
            try:
                await (self._renew() if self.id else self._grant())
            except (EtcdUnavailable, EtcdRefused) as error:
                logger.debug("a lease was not renewed: %s", error)
            await asyncio.sleep(self._seconds / RENEWALS)

    async def close(self) -> None:
        """Give the lease up, so that nobody has to wait for its end."""
        lease, self.id = self.id, 0
        if lease:
            try:
                await self._client.call(
                    lambda member: member.lease.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease), CALL_SECONDS
                )
            except (EtcdUnavailable, EtcdRefused) as error:
                logger.debug("a lease was not revoked: %s", error)

    async def _grant(self) -> None:
        began_at = time.monotonic()
        request = rpc.LeaseGrantRequest(TTL=self._seconds)
        answer = await self._client.call(lambda member: member.lease.LeaseGrant, request, CALL_SECONDS)
        self.id, self._lasts_until = answer.ID, began_at + self._seconds

    async def _renew(self) -> None:
        began_at = time.monotonic()
        member = self._client.current
        try:
            stream = member.lease.LeaseKeepAlive(timeout=CALL_SECONDS)
        except grpc.aio.UsageError:
            raise EtcdUnavailable("the connection was closed") from None
        try:
            await stream.write(rpc.LeaseKeepAliveRequest(ID=self.id))
            answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            self._client.turn_from(member)
            raise EtcdUnavailable(error.details()) from None
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise EtcdUnavailable("the connection was closed") from None
        finally:
            stream.cancel()
        if answer is grpc.aio.EOF or not answer.TTL:
            self.id = 0
            await self._grant()
        else:
            self._client.note_answer()
            self._lasts_until = began_at + self._seconds
