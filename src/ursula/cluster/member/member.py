"""A node's member of the cluster: creates it, and keeps it running while the node runs."""

import asyncio
import logging

from ...etcd.client import EtcdClient, EtcdRefused, EtcdUnavailable
from ..failures import ClusterRefused, EtcdFailed
from ..tls import TlsFiles
from .etcd_folder import EtcdFolder
from .etcd_process import EtcdProcess, EtcdSupervisor
from .etcd_program import EtcdProgram
from .member_list import ChangeRefused, ListedMember, MemberList, list_members, promote_learner
from .member_settings import EtcdCommand, MemberSettings
from .new_cluster import MayBegin, begin_cluster
from .new_member import NewMember
from .notice import Notice

ASK_SECONDS = 3.0
"""How long the bootstrap node asks the others for a cluster before it begins one."""
LIST_SECONDS = 2.0
LOOK_SECONDS, LEARNER_LOOK_SECONDS = 1.0, 0.2

logger = logging.getLogger(__name__)


class Member:
    """Runs the node's own etcd, and knows where all members are."""

    def __init__(
        self,
        settings: MemberSettings,
        program: EtcdProgram,
        folder: EtcdFolder,
        tls: TlsFiles | None,
        may_begin: MayBegin,
    ) -> None:
        """Must be called where a loop runs. The folder belongs to this process alone."""
        self._settings = settings
        self._folder = folder
        self._command = EtcdCommand(settings, program, folder, tls)
        self._may_begin = may_begin
        self._supervisor = EtcdSupervisor(self._command.to_restart)
        self._notice = Notice(logger)
        addresses = list(dict.fromkeys([settings.address, *settings.others]))
        self.client = EtcdClient(addresses, None if tls is None else tls.credentials())
        """Of all members; it can be used before this node has one."""
        self.number: int | None = None
        """The number of this node's member, once it has one."""
        self.is_voter = False
        """Whether this node's member was a voter when the members were last listed."""
        if program.warning is not None:
            logger.warning(program.warning)

    @property
    def problem(self) -> str | None:
        """Why this node's etcd is not running; None if it is, or was not started yet."""
        return self._supervisor.problem

    async def run(self) -> None:
        """Have a member, until cancelled; etcd is stopped then.

        Raises ClusterRefused or EtcdFailed if the node cannot have one.
        """
        looking = asyncio.create_task(self.client.run())
        try:
            while True:
                process = await self._ensure_member()
                await self._run_until_removed(process)
                logger.warning("%s was removed from the cluster, and joins again", self._settings.name)
                self.is_voter, self.number = False, None
                self._folder.move_aside()
        except OSError as error:
            raise EtcdFailed(f"cannot use the folder {self._folder.path}: {error.strerror}") from None
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self.client.close()

    async def _ensure_member(self) -> EtcdProcess | None:
        """Make sure that the folder has the data of a member; returns its etcd if that runs already."""
        if self._folder.has_member and not self._folder.is_beginning:
            return None
        if self._settings.is_bootstrap and not await self._any_member_answers():
            if await begin_cluster(self._command, self._may_begin):
                return None
            logger.info("%s does not begin a cluster: one was begun before", self._settings.name)
        self._folder.abandon_beginning()
        await self.client.set_addresses(self._addresses_to_ask())
        return await NewMember(self._command, self.client).join()

    async def _any_member_answers(self) -> bool:
        """Whether any other node has a member that answers."""
        if not self._settings.others:
            return False
        give_up_at = asyncio.get_running_loop().time() + ASK_SECONDS
        while asyncio.get_running_loop().time() < give_up_at:
            asked = (self.client.status_at(address) for address in self._settings.others)
            if any(status is not None for status in await asyncio.gather(*asked)):
                return True
            self._notice.say("asking for a cluster at %s", ", ".join(self._settings.others))
            await asyncio.sleep(LEARNER_LOOK_SECONDS)
        return False

    def _addresses_to_ask(self) -> list[str]:
        """The others as configured, and the members as last listed."""
        listed = [endpoint.address for endpoint in self.client.endpoints]
        found = dict.fromkeys([*self._settings.others, *listed])
        return [address for address in found if address != self._settings.address] or [self._settings.address]

    async def _run_until_removed(self, process: EtcdProcess | None) -> None:
        running = asyncio.create_task(self._supervisor.run(process))
        try:
            while not running.done():
                if await self._is_removed():
                    return
                pause = LOOK_SECONDS if self.is_voter else LEARNER_LOOK_SECONDS
                await asyncio.wait([running], timeout=pause)
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _is_removed(self) -> bool:
        """Look at the members: follow their addresses, and promote this one if it is a learner."""
        try:
            known = await list_members(self.client, LIST_SECONDS)
        except (EtcdUnavailable, EtcdRefused) as error:
            self._notice.say("%s waits for the other members: %s", self._settings.name, error)
            return False
        own = self._find_own(known)
        if own is None:
            return True
        self.number = own.number
        if own.is_learner:
            await self._promote(own)
        elif not self.is_voter:
            logger.info("%s is a voter of the cluster %s", self._settings.name, self._settings.cluster_name)
        self.is_voter = not own.is_learner
        if addresses := known.voter_addresses():
            await self.client.set_addresses(addresses)
        return False

    def _find_own(self, known: MemberList) -> ListedMember | None:
        note = self._folder.member
        if note.cluster != known.cluster:
            raise ClusterRefused(
                f"{self._folder.path} has a member of another etcd cluster than the one that answers at "
                f"{self.client.current.address}: check cluster.routes, or move that folder away to join"
            )
        return known.find(note.member)

    async def _promote(self, own: ListedMember) -> None:
        try:
            await promote_learner(self.client, own.number)
        except ChangeRefused as error:
            self._notice.say("%s is a learner and catches up: %s", self._settings.name, error)
