"""The keeper's role in a cluster: the node that holds a lease has it, until the lease ends."""

import asyncio
import logging
from collections.abc import Callable

from aetcd import rpc

from ..engine.keeper import KeeperRole
from ..etcd.client import CALL_SECONDS, EtcdClient, EtcdRefused, EtcdUnavailable
from ..etcd.lease import Lease

LEASE_SECONDS = 5
TRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


class KeeperLease(KeeperRole):
    """This node's claim to the role."""

    def __init__(
        self, client: EtcdClient, node: str, find_problem: Callable[[], str | None] = lambda: None
    ) -> None:
        """`node` is the name of this node; `find_problem` says why it cannot do the work for now."""
        self._client = client
        self._find_problem = find_problem
        self._node = node.encode()
        self._lease = Lease(client, LEASE_SECONDS)
        self._claimed_with = 0  # the lease that the key was claimed with
        self._is_given_up = False
        self._found_problem: str | None = None
        self.keeper: str | None = None
        """The name of the keeper, as last seen."""

    @property
    def is_held(self) -> bool:
        """Whether this node is certainly the keeper."""
        return self.problem is None and self._lease.is_held and self._lease.id == self._claimed_with

    @property
    def problem(self) -> str | None:
        """Why this node leaves the role to others."""
        return "it has given up the role" if self._is_given_up else self._found_problem

    def give_up(self) -> None:
        """Leave the role to others for as long as this process runs."""
        self._is_given_up = True

    async def run(self, key: bytes) -> None:
        """Claim the role whenever nobody has it, until cancelled; `key` names the keeper."""
        renewing = asyncio.create_task(self._lease.run())
        was_held = False
        try:
            while True:
                self._found_problem = self._find_problem()
                if self.problem is not None and self._claimed_with:
                    await self._release()
                if self._lease.is_held and not self.is_held:
                    await self._claim(key)
                if was_held != self.is_held:
                    was_held = self.is_held
                    if was_held:
                        logger.info("this node is now the keeper")
                    else:
                        logger.info(
                            "this node is no longer the keeper: %s", self.problem or "its lease ended"
                        )
                await asyncio.sleep(TRY_SECONDS)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def close(self) -> None:
        """Give the role up, so that another node takes it at once."""
        self._is_given_up = True
        await self._release()

    async def _release(self) -> None:
        """Let another node take the role at once; the next lease is another one."""
        self._claimed_with = 0
        await self._lease.close()

    async def _claim(self, key: bytes) -> None:
        """Become the keeper, unless another node is or this one must not; otherwise see who it is."""
        compare, lease = rpc.Compare, self._lease.id
        put = rpc.PutRequest(key=key, value=self._node, lease=lease)
        look = rpc.RequestOp(request_range=rpc.RangeRequest(key=key))
        is_free = compare(result=compare.EQUAL, target=compare.VERSION, key=key, version=0)
        request = rpc.TxnRequest(compare=[is_free], success=[rpc.RequestOp(request_put=put)], failure=[look])
        if self.problem is not None:
            request = rpc.TxnRequest(failure=[look], compare=[is_free])
        try:
            answer = await self._client.call(lambda member: member.kv.Txn, request, CALL_SECONDS)
        except (EtcdUnavailable, EtcdRefused) as error:
            logger.debug("the role of the keeper was not claimed: %s", error)
            return
        found = [] if answer.succeeded else answer.responses[0].response_range.kvs
        # An attempt whose answer was lost may have claimed it with this lease.
        if (answer.succeeded and self.problem is None) or (found and found[0].lease == lease):
            self._claimed_with = lease
            self.keeper = self._node.decode()
        elif found:
            self.keeper = found[0].value.decode()
