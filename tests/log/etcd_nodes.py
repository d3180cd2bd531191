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
        (log,) = await self.logs(1, **settings)
        return log

    async def logs(self, group_count: int, **settings: int) -> list[EtcdLog]:
        """The logs of several groups as another node sees them."""
        return await self._stack.enter_async_context(self._opened(group_count, settings))

    @asynccontextmanager
    async def _opened(self, group_count: int, settings: dict[str, int]) -> AsyncIterator[list[EtcdLog]]:
        client = EtcdClient(self._addresses)
        name = f"node-{next(self._numbers)}"
        logs = EtcdLogs(client, self._prefix, settings.pop("generation", 1), name, **settings)
        running = asyncio.gather(logs.run(), logs.client.run())
        opened = [EtcdLog(logs, group) for group in range(group_count)]
        await leader_of(opened[0])
        await logs.create(group_count)
        try:
            yield opened
        finally:
            for log in opened:
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
