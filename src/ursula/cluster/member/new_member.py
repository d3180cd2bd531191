"""A member that joins a cluster: added as a learner, so that it does not count before it is in step.

Every step can be interrupted. A node that finds no data of a member in its folder starts over: it removes
the membership that it may have had, since nothing can vote in its name any more, and is added anew.
"""

import asyncio
import logging
import time

from ...etcd.client import EtcdClient, EtcdRefused, EtcdUnavailable
from ..failures import EtcdFailed
from .etcd_folder import MemberNote
from .etcd_process import EtcdProcess
from .member_list import (
    ChangeRefused,
    ListedMember,
    MemberList,
    add_learner,
    is_alive,
    list_members,
    remove_member,
)
from .member_settings import EtcdCommand
from .notice import Notice

LIST_SECONDS = 2.0
RETRY_SECONDS = 0.3
FAILED_SECONDS = 2.0
FIRST_WRITE_SECONDS_MAX = 60.0
DEAD_LEARNER_SECONDS = 60.0
"""After this long, a learner of another node that never answers is removed: etcd allows only one at a time.
Its node joins anew when it comes back."""
_LOOK_SECONDS = 0.05

logger = logging.getLogger(__name__)


class _NotYet(Exception):
    """Why the node cannot be added now."""


class NewMember:
    """One node's way into a cluster."""

    def __init__(self, command: EtcdCommand, client: EtcdClient) -> None:
        self._command = command
        self._settings = command.settings
        self._client = client
        self._notice = Notice(logger)
        self._silent_since: dict[int, float] = {}

    async def join(self) -> EtcdProcess:
        """Become a learner; waits as long as necessary. Returns its etcd, which has begun to write."""
        while True:
            try:
                added, members = await self._add()
                return await self._start(added, members)
            except EtcdUnavailable:
                others = ", ".join(self._settings.others) or "cluster.routes names no other node"
                self._notice.say(
                    "%s waits for the cluster %s: no majority of it answers (%s)",
                    *(self._settings.name, self._settings.cluster_name, others),
                )
            except (_NotYet, ChangeRefused, EtcdRefused) as error:
                self._notice.say("%s waits to be added to the cluster: %s", self._settings.name, error)
            except EtcdFailed as error:
                logger.error("%s could not join the cluster: %s", self._settings.name, error)
                await asyncio.sleep(FAILED_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)

    async def _add(self) -> tuple[ListedMember, MemberList]:
        known = await list_members(self._client, LIST_SECONDS)
        for member in known.members:
            if member.name == self._settings.name or self._command.peer_url in member.peer_urls:
                await self._remove_old(member)
            elif member.is_learner:
                await self._wait_for_learner(member)
        return await add_learner(self._client, self._command.peer_url)

    async def _remove_old(self, member: ListedMember) -> None:
        if await is_alive(self._client, member):
            raise _NotYet(f"{member} is running already; every node needs a server.node_id of its own")
        await remove_member(self._client, member.number)
        logger.info("removed the old membership of %s, since its data is gone", member)

    async def _wait_for_learner(self, member: ListedMember) -> None:
        now = time.monotonic()
        if await is_alive(self._client, member):
            self._silent_since.pop(member.number, None)
        elif now - self._silent_since.setdefault(member.number, now) > DEAD_LEARNER_SECONDS:
            await remove_member(self._client, member.number)
            logger.warning("removed %s, which was added but does not answer, to make room", member)
            return
        raise _NotYet(f"{member} is joining, and only one can join at a time")

    async def _start(self, added: ListedMember, members: MemberList) -> EtcdProcess:
        folder = self._command.folder
        folder.clear()
        folder.note_member(MemberNote(members.cluster, added.number))
        process = await EtcdProcess.start(self._command.to_join(added.number, members))
        try:
            await self._wait_for_data(process)
        except BaseException:
            await process.stop()
            raise
        logger.info("%s has joined the cluster as a learner", self._settings.name)
        return process

    async def _wait_for_data(self, process: EtcdProcess) -> None:
        give_up_at = time.monotonic() + FIRST_WRITE_SECONDS_MAX
        while not self._command.folder.has_member:
            if not process.is_running:
                raise await process.wait()
            if time.monotonic() > give_up_at:
                raise EtcdFailed("the new etcd writes nothing")
            await asyncio.sleep(_LOOK_SECONDS)
