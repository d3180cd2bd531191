"""Nodes that share a log on the members of an etcd."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

from tests.log.etcd_members import EtcdMember

from ursula.etcd.client import EtcdClient, EtcdEndpoint
from ursula.log.etcd.log import EtcdLog, EtcdLogs
from ursula.log.interface import GENERATION_SHIFT

BASE = 1 << GENERATION_SHIFT

_prefixes = count()


class Nodes:
    """Nodes that share a log."""

    def __init__(self, members: Sequence[EtcdMember], stack: AsyncExitStack) -> None:
        self._addresses = [member.address for member in members]
        self._stack = stack
        self._prefix = f"{next(_prefixes)}/"
        self._numbers = count()

    async def log(self, **settings: int) -> EtcdLog:
        """The log as another node sees it."""
        return await self._stack.enter_async_context(self._opened(settings))

    @asynccontextmanager
    async def _opened(self, settings: dict[str, int]) -> AsyncIterator[EtcdLog]:
        client = EtcdClient(self._addresses)
        name = f"node-{next(self._numbers)}"
        logs = EtcdLogs(client, self._prefix, settings.pop("generation", 1), name, **settings)
        running = asyncio.gather(logs.run(), logs.client.run())
        log = EtcdLog(logs, 0)
        await leader_of(log)
        await logs.create(1)
        try:
            yield log
        finally:
            await log.close()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await logs.close()
            await logs.client.close()


async def leader_of(log: EtcdLog) -> EtcdEndpoint:
    """The leader's member, as soon as there is one."""
    async with asyncio.timeout(30):
        while (leader := await log._client.find_leader()) is None:
            await asyncio.sleep(0.05)
        return leader


async def payloads_of(log: EtcdLog, total: int, after: int = BASE) -> list[bytes]:
    entries = log.follow(after)
    async with asyncio.timeout(30):
        return [(await anext(entries)).payload for _ in range(total)]
