"""The log of a group in etcd, and what the logs of all groups of a node share.

A position is the generation and the revision of etcd that an entry was written at. So positions have gaps:
other keys, and entries of other groups, have revisions too.
"""

import asyncio
import logging
from contextlib import suppress
from weakref import WeakSet

import grpc
from aetcd import rpc

from ursula.etcd.client import EtcdClient, EtcdRefused, EtcdUnavailable
from ursula.etcd.lease import Lease
from ursula.log.etcd.entry_pages import list_entries
from ursula.log.etcd.follower import EtcdFollower
from ursula.log.etcd.keys import LogKeys, encode_position, proposer_of
from ursula.log.etcd.log_size import LogSize
from ursula.log.etcd.proposer import Proposer
from ursula.log.interface import (
    COUNTER_MASK,
    GENERATION_SHIFT,
    AppendRetryable,
    Entry,
    LogDamaged,
    LogUnavailable,
    Measures,
    TakeEntry,
)

LOG_BYTES_MAX = 512 << 20
"""A longer log than this is trimmed even if a node still needs its entries."""

KEPT_BYTES = 64 << 20
"""The last entries stay in the log, so that a node that is a little behind need not start again."""

TAIL_SECONDS = 2.0
CALL_SECONDS_MAX = 5.0
CHECK_SECONDS = 0.5
SILENT_SECONDS = 1.0
NEED_SECONDS = 15
"""How long trimming waits for a node whose lease is no longer renewed."""

COMPACTION_SECONDS = 60.0

logger = logging.getLogger(__name__)


class EtcdLogs:
    """The logs of all groups of a node: they share the connections, the transactions and a lease."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        generation: int,
        node: str,
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """`node` is a name that no other process has, not even an earlier one of the same node."""
        self.client = client
        self.keys = LogKeys(prefix, generation)
        self._prefix = prefix
        self.generation = generation
        self.node = node
        self.log_bytes_max = log_bytes_max
        self.kept_bytes = kept_bytes
        self.proposer = Proposer(client, self.keys, generation, node)
        self.lease = Lease(client, NEED_SECONDS)

    async def create(self, group_count: int, instead_of: int | None = None) -> None:
        """Begin the logs of this generation, unless another one has begun than the one they replace.

        From then on no proposer of the earlier generation writes anything.
        """
        compare, key = rpc.Compare, self.keys.generation
        base = encode_position(self.generation << GENERATION_SHIFT)
        if instead_of is None:
            condition = compare(result=compare.EQUAL, target=compare.VERSION, key=key, version=0)
        else:
            value = b"%d" % instead_of
            condition = compare(result=compare.EQUAL, target=compare.VALUE, key=key, value=value)
        puts = [(key, b"%d" % self.generation)]
        puts += [(self.keys.group(number).trimmed, base) for number in range(group_count)]
        request = rpc.TxnRequest(
            compare=[condition],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value)) for key, value in puts],
        )
        await self.call(request)

    async def forget_earlier(self, group_count: int) -> None:
        """Remove the entries of earlier generations: nothing follows them any more."""
        for generation in range(1, self.generation):
            keys = LogKeys(self._prefix, generation)
            for group in (keys.group(number) for number in range(group_count)):
                request = rpc.DeleteRangeRequest(key=group.entries, range_end=group.entries_end)
                await self.call(rpc.TxnRequest(success=[rpc.RequestOp(request_delete_range=request)]))

    async def find_generation(self) -> int | None:
        """The generation that the log is in; None if there is no log."""
        request = rpc.TxnRequest(
            success=[rpc.RequestOp(request_range=rpc.RangeRequest(key=self.keys.generation))]
        )
        answer = await self.call(request)
        found = answer.responses[0].response_range.kvs
        return int(found[0].value) if found else None

    async def run(self) -> None:
        """Keep the lease, and forget the history of etcd now and then, until cancelled."""
        await asyncio.gather(self.lease.run(), self._compact_periodically())

    async def close(self) -> None:
        """Write nothing more, and give the lease up."""
        await self.proposer.close()
        await self.lease.close()

    async def compact(self, revision: int) -> None:
        """Forget the history of etcd before a revision."""
        request = rpc.CompactionRequest(revision=revision)
        try:
            await self.client.call(lambda member: member.kv.Compact, request, CALL_SECONDS_MAX)
        except EtcdUnavailable as error:
            logger.debug("etcd was not compacted: %s", error)
        except EtcdRefused as error:
            if error.code is not grpc.StatusCode.OUT_OF_RANGE:  # it is compacted further already
                logger.warning("etcd was not compacted: %s", error)

    async def _compact_periodically(self) -> None:
        """Forget history even while nothing is trimmed: leases and needs write revisions too."""
        before = 0
        while True:
            with suppress(LogUnavailable):
                answer = await self.call(rpc.TxnRequest())
                if before:
                    await self.compact(before)
                before = answer.header.revision
            await asyncio.sleep(COMPACTION_SECONDS)

    @property
    def is_own_generation(self) -> rpc.Compare:
        """The condition that the log is still in the generation of this node."""
        compare = rpc.Compare
        return compare(
            result=compare.EQUAL,
            target=compare.VALUE,
            key=self.keys.generation,
            value=b"%d" % self.generation,
        )

    async def call(self, request: rpc.TxnRequest, seconds: float = CALL_SECONDS_MAX) -> rpc.TxnResponse:
        """Make a transaction that may be repeated; raises LogUnavailable."""
        try:
            return await self.client.call(lambda member: member.kv.Txn, request, seconds)
        except (EtcdUnavailable, EtcdRefused) as error:
            raise LogUnavailable(str(error)) from None


class EtcdLog:
    """The log of one group."""

    known_tail = None
    batch_bytes = 128 * 1024
    entry_bytes_max: int | None = 256 * 1024

    def __init__(self, logs: EtcdLogs, group: int) -> None:
        self._logs = logs
        self._client = logs.client
        self._group = group
        self._keys = logs.keys.group(group)
        self._base = logs.generation << GENERATION_SHIFT
        self._first = self._base
        self._need: tuple[int, int] | None = None
        self._size = LogSize(self._base)
        self._followers: WeakSet[EtcdFollower] = WeakSet()
        self._tail_reading: asyncio.Future[int] | None = None
        self._tail_next: asyncio.Future[int] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def first(self) -> int:
        """The position up to which entries may be missing, as far as this node knows."""
        return self._first

    @property
    def measures(self) -> Measures:
        """Its extent and size, as far as this node knows them."""
        return Measures(self._first, self._size.last, self._size.bytes, None, None)

    @property
    def space_problem(self) -> str | None:
        """Why there is no space for more than the engine's own commands."""
        return self._logs.proposer.space_problem

    def append(self, payload: bytes) -> asyncio.Future[int]:
        """Write an entry; the future gets its position or an AppendFailed."""
        if not self._is_closed:
            return self._logs.proposer.append(self._group, payload)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(AppendRetryable("the log is closed"))
        return future

    def follow(self, after: int, count: int | None = None, take: TakeEntry | None = None) -> EtcdFollower:
        """Entries after a position, then live ones; LogDamaged if they are not exactly the next ones."""
        self._size.follow(after)
        follower = EtcdFollower(
            self._client, self._keys, self._base, after=after, count=count, on_entry=self._note
        )
        self._followers.add(follower)
        if self._is_closed:
            follower.end()
        elif self._checking is None:
            self._checking = asyncio.create_task(self._watch_followers())
        return follower

    def _note(self, entry: Entry) -> None:
        """Note the size of an entry that a follower has received."""
        self._size.add(entry.position, len(entry.payload))

    async def tail(self) -> int:
        """The position of the last entry. One read serves all that waited when it began."""
        if self._tail_next is None:
            self._tail_next = asyncio.ensure_future(self._read_tail(self._tail_reading))
        return await asyncio.shield(self._tail_next)

    async def _read_tail(self, earlier: asyncio.Future[int] | None) -> int:
        if earlier is not None and not earlier.done():
            await asyncio.wait((earlier,))
        self._tail_reading, self._tail_next = self._tail_next, None
        head = rpc.RangeRequest(key=self._keys.head, keys_only=True)
        request = rpc.TxnRequest(
            compare=[self._logs.is_own_generation], success=[rpc.RequestOp(request_range=head)]
        )
        answer = await self._logs.call(request, TAIL_SECONDS)
        if not answer.succeeded:  # other nodes may have acknowledged writes that are not in this log
            raise LogUnavailable("the store of the cluster was restored. Start this node again after that")
        found = answer.responses[0].response_range.kvs
        return self._base + (found[0].mod_revision if found else 0)

    async def protect(self, after: int) -> int:
        """Say that this node still needs the entries after a position; returns `first`."""
        lease = self._logs.lease
        lease_id = lease.id
        operations = [rpc.RequestOp(request_range=rpc.RangeRequest(key=self._keys.trimmed))]
        if self._need != (after, lease_id):
            put = rpc.PutRequest(
                key=self._keys.need(self._logs.node), value=encode_position(after), lease=lease_id
            )
            operations.append(rpc.RequestOp(request_put=put))
        if not lease.is_held:
            raise LogUnavailable("this node has no lease in etcd")
        answer = await self._logs.call(rpc.TxnRequest(success=operations))
        self._need = after, lease_id
        self._note_first(answer.responses[0].response_range.kvs)
        return self._first

    async def trim(self, upto: int) -> None:
        """Remove entries at or below a position, except those that are needed or recent."""
        upto = await self._trimmable(upto)
        if upto <= self._first:
            return
        if not await self._move_trimmed(upto):
            return  # another node has trimmed further
        try:
            async for page in list_entries(self._client, self._keys):
                await self._delete(page, upto & COUNTER_MASK)
        except (EtcdUnavailable, EtcdRefused) as error:
            raise LogUnavailable(str(error)) from None
        await self._logs.compact(upto & COUNTER_MASK)

    async def close(self) -> None:
        """Finish the appends that were begun, if that is possible soon, and end the followers."""
        self._is_closed = True
        await self._logs.proposer.wait_until_idle()
        if self._checking is not None:
            self._checking.cancel()
        for follower in self._followers:
            follower.end()

    # Trimming

    async def _trimmable(self, upto: int) -> int:
        """How far the log may be trimmed."""
        upto = min(upto, await self.tail())
        await self._find_size()
        if self._logs.kept_bytes:
            kept_after = self._size.kept_after(self._logs.kept_bytes)
            upto = min(upto, self._first if kept_after is None else kept_after)
        if self._size.bytes <= self._logs.log_bytes_max:
            request = rpc.RangeRequest(key=self._keys.needs, range_end=self._keys.needs_end)
            operation = rpc.RequestOp(request_range=request)
            answer = await self._logs.call(rpc.TxnRequest(success=[operation]))
            needs = answer.responses[0].response_range.kvs
            upto = min(upto, *(int(need.value) for need in needs), upto)
        return upto

    async def _find_size(self) -> None:
        """Learn the sizes of the entries from before this node started, unless they are known."""
        try:
            await self._size.find_earlier(self._client, self._keys)
        except (EtcdUnavailable, EtcdRefused) as error:
            logger.info("the next trim will find out how long the log of group %d is: %s", self._group, error)
        self._size.trim(self._first)  # another node may have trimmed meanwhile

    async def _move_trimmed(self, upto: int) -> bool:
        """Say how far the log is trimmed, before anything is removed. It only ever moves forward."""
        compare = rpc.Compare
        value = encode_position(upto)
        request = rpc.TxnRequest(
            compare=[compare(result=compare.LESS, target=compare.VALUE, key=self._keys.trimmed, value=value)],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=self._keys.trimmed, value=value))],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=self._keys.trimmed))],
        )
        answer = await self._logs.call(request)
        if not answer.succeeded:
            self._note_first(answer.responses[0].response_range.kvs)
            return self._first == upto  # this call was answered at its second attempt
        self._set_first(upto)
        return True

    async def _delete(self, page: list[rpc.KeyValue], revision: int) -> None:
        """Delete the entries of a page up to a revision: the keys of a proposer are in their order."""
        last = {proposer_of(entry.key): entry.key for entry in page if entry.mod_revision <= revision}
        for proposer, key in last.items():
            request = rpc.DeleteRangeRequest(key=proposer, range_end=key + b"\0")
            await self._client.call(lambda member: member.kv.DeleteRange, request, CALL_SECONDS_MAX)

    def _note_first(self, trimmed: list[rpc.KeyValue]) -> None:
        if not trimmed:
            problem, hint = "the key of the trimmed position is gone", "See docs/troubleshooting.md"
            raise LogDamaged("etcd", f"group {self._group}", problem, hint)
        self._set_first(int(trimmed[0].value))

    def _set_first(self, first: int) -> None:
        self._first = max(self._first, first)
        self._size.trim(self._first)

    # A watch that is silent

    async def _watch_followers(self) -> None:
        """Have a follower follow another member when its own stays silent although there is more."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for follower in self._followers:
                if follower.is_elsewhere:
                    follower.restart()  # at the leader's member
            with suppress(LogUnavailable):
                tail = await self.tail()
                for follower in self._followers:
                    if follower.is_silent(tail, SILENT_SECONDS):
                        logger.warning(
                            "the etcd member %s is silent: following another one", follower.member.address
                        )
                        self._client.turn_from(follower.member)
                        follower.restart()
