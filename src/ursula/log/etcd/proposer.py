"""Writes the entries of all groups of a node, one transaction at a time.

A transaction has a number, and is written only if the version of the proposer's key is the number before it.
So each number is written once and in order, however often and to however many members a transaction is sent,
even if an attempt that timed out arrives late. With two transactions in flight, a quarter came out of order
and had to be sent again, and throughput fell by a third.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import grpc
from aetcd import rpc

from ursula.etcd.client import (
    CALL_SECONDS,
    PAUSE_SECONDS,
    REQUEST_BYTES_MAX,
    EtcdClient,
    EtcdRefused,
    EtcdUnavailable,
)
from ursula.log.etcd.keys import LogKeys
from ursula.log.interface import (
    GENERATION_SHIFT,
    AppendFailed,
    AppendRefused,
    AppendRetryable,
    AppendUnknown,
)

REQUEST_BYTES = 1024 * 1024
"""About how large a transaction may become; one entry always fits."""

ENTRY_BYTES_MAX = REQUEST_BYTES_MAX - REQUEST_BYTES
"""A larger entry is not sent: the rest of a request is for the keys, and for the entries of other groups."""

DATABASE_BYTES_MAX = 4 << 30
"""With a larger database than this, clients must wait, and only the engine writes its own commands, which let
it flush and trim the log. At its own limit, which is twice as large, etcd cannot even be trimmed."""

ENTRIES_MAX = 60
"""How many entries a transaction may have: two keys for each, and etcd takes 128 in all."""

STUCK_SECONDS = 3.0
"""After this long, the log says that a transaction is still being repeated, and why."""

_CERTAIN = frozenset(
    (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
"""What etcd answers only before it writes a transaction, except for "no space": see `_is_full`."""

PAUSE_SECONDS_MAX = 0.5
CLOSE_SECONDS = 2.0

logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """An entry, and the future that gets its position."""

    group: int
    payload: bytes
    future: asyncio.Future[int]


class Proposer:
    """Writes entries under a name that no other process has: a node's, and a number drawn at its start."""

    def __init__(self, client: EtcdClient, keys: LogKeys, generation: int, name: str) -> None:
        self._client = client
        self._keys = keys
        self._base = generation << GENERATION_SHIFT
        self._generation = b"%d" % generation
        self.name = name
        self._own_key = keys.proposer(name)
        self._written = 0  # the number of the last transaction that was written
        self._waiting: deque[_Waiting] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False
        self.problem: str | None = None
        """Why nothing can be written any more."""

    def append(self, group: int, payload: bytes) -> asyncio.Future[int]:
        """Write an entry of a group; the future gets its position or an AppendFailed."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            future.set_exception(AppendRetryable("the log is closed"))
        elif self.problem is not None:
            future.set_exception(AppendRetryable(self.problem))
        elif len(payload) > ENTRY_BYTES_MAX:
            reason = f"an entry of {len(payload)} bytes is too large: etcd takes {ENTRY_BYTES_MAX}"
            future.set_exception(AppendRefused(reason))
        else:
            self._waiting.append(_Waiting(group, payload, future))
            if self._sending is None:
                self._sending = asyncio.create_task(self._send_all())
        return future

    @property
    def space_problem(self) -> str | None:
        """Why there is no space for more than the engine's own commands."""
        if self._client.database_bytes <= DATABASE_BYTES_MAX:
            return None
        size = self._client.database_bytes >> 20
        return f"etcd holds {size} MiB, and must be trimmed first: see the keeper's log"

    async def wait_until_idle(self) -> None:
        """Wait until nothing is on its way, but not for long."""
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=CLOSE_SECONDS)

    async def close(self) -> None:
        """Write nothing more. What is still on its way then may have been written or not."""
        self._is_closed = True
        await self.wait_until_idle()
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sending

    async def _send_all(self) -> None:
        try:
            while self._waiting and self.problem is None:
                await self._send(self._take())
        finally:
            self._sending = None
            _fail(self._waiting, AppendRetryable(self.problem or "the log is closed"))
            self._waiting.clear()

    def _take(self) -> list[_Waiting]:
        """The entries of the next transaction: as many as fit, and one of each group at most."""
        taken: dict[int, _Waiting] = {}
        size = 0
        while self._waiting and len(taken) < ENTRIES_MAX:
            upcoming = self._waiting[0]
            size += len(upcoming.payload)
            if upcoming.group in taken or (taken and size > REQUEST_BYTES):
                break
            taken[upcoming.group] = self._waiting.popleft()
        return list(taken.values())

    async def _send(self, entries: list[_Waiting]) -> None:
        """Write one transaction, and resolve the futures of its entries."""
        try:
            position = await self._write(entries)
        except AppendFailed as failure:
            _fail(entries, failure)
        except asyncio.CancelledError:
            _fail(entries, AppendUnknown("the log is closed"))
            raise
        except Exception as error:
            self.problem = f"the log stopped: {error!r}"  # the number must not be given to other entries
            logger.exception("the log stopped")
            _fail(entries, AppendUnknown(self.problem))
        else:
            for entry in entries:
                if not entry.future.done():
                    entry.future.set_result(position)

    async def _write(self, entries: list[_Waiting]) -> int:
        """Write one transaction; returns its position or raises an AppendFailed.

        After a failure that is not a rejection, the transaction may have been written, so the same one is
        sent again until it is certain.
        """
        number = self._written + 1
        request = self._transaction(number, entries)
        may_be_written = False
        pause = PAUSE_SECONDS
        warn_at = time.monotonic() + STUCK_SECONDS
        while True:
            member = self._client.current
            try:
                answer = await member.ask(member.kv.Txn, request, CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                rejection = _rejection(error)
                if _is_full(error):
                    own = await self._read_own()
                    if own is not None and own.version == number:
                        return self._note_written(number, own.mod_revision)
                    if own is None:
                        rejection = None
                if rejection is not None and not may_be_written:
                    raise rejection from None
                may_be_written = may_be_written or rejection is None
                if time.monotonic() > warn_at:
                    warn_at = math.inf
                    logger.warning("etcd does not take a transaction, which is repeated: %s", error.details())
                self._client.turn_from(member)
                await asyncio.sleep(pause)
                pause = min(PAUSE_SECONDS_MAX, pause * 2)
                continue
            self._client.note_answer()
            if answer.succeeded:
                return self._note_written(number, answer.header.revision)
            return self._read_rejected(number, answer)

    def _note_written(self, number: int, revision: int) -> int:
        self._written = number
        return self._base + revision

    async def _read_own(self) -> rpc.KeyValue | None:
        """The proposer's key as of now, with version 0 if it has none yet; None if no member answers."""
        request = rpc.RangeRequest(key=self._own_key, keys_only=True)
        try:
            answer = await self._client.call(lambda member: member.kv.Range, request, CALL_SECONDS)
        except (EtcdUnavailable, EtcdRefused):
            return None
        return answer.kvs[0] if answer.kvs else rpc.KeyValue()

    def _read_rejected(self, number: int, answer: rpc.TxnResponse) -> int:
        """What it means that the conditions of a transaction did not hold."""
        generations, own = (response.response_range.kvs for response in answer.responses)
        version = own[0].version if own else 0
        if version == number:  # an earlier attempt was written
            return self._note_written(number, own[0].mod_revision)
        if version == number - 1 and generations:
            found = generations[0].value.decode()
            self.problem = (
                f"the log is in generation {found}, and this node in {self._generation.decode()}: "
                "the store of the cluster was restored. Start this node again after that"
            )
            logger.critical("%s", self.problem)
            raise AppendRetryable(self.problem)  # a late attempt has no effect either
        self.problem = (
            f"etcd has {version if generations else 'no log, and 0'} transactions of this node, and should "
            f"have {number - 1} or {number}: it is not the etcd that it was. Stop this node, and see "
            "docs/troubleshooting.md"
        )
        logger.critical("%s", self.problem)
        raise AppendUnknown(self.problem)

    def _transaction(self, number: int, entries: list[_Waiting]) -> rpc.TxnRequest:
        compare, op = rpc.Compare, rpc.RequestOp
        puts = []
        for entry in entries:
            keys = self._keys.group(entry.group)
            puts.append((keys.entry(self.name, number), entry.payload))
            puts.append((keys.head, b""))
        puts.append((self._own_key, b""))
        return rpc.TxnRequest(
            compare=[
                compare(
                    result=compare.EQUAL,
                    target=compare.VALUE,
                    key=self._keys.generation,
                    value=self._generation,
                ),
                compare(result=compare.EQUAL, target=compare.VERSION, key=self._own_key, version=number - 1),
            ],
            success=[op(request_put=rpc.PutRequest(key=key, value=value)) for key, value in puts],
            failure=[
                op(request_range=rpc.RangeRequest(key=self._keys.generation)),
                op(request_range=rpc.RangeRequest(key=self._own_key, keys_only=True)),
            ],
        )


def _is_full(error: grpc.aio.AioRpcError) -> bool:
    """Whether etcd reports that it has no space left. It may have written the transaction all the same."""
    return "database space exceeded" in (error.details() or "")


def _rejection(error: grpc.aio.AioRpcError) -> AppendFailed | None:
    """The failure of a transaction that was not written, unless `_is_full`; None if it may have been."""
    code, details = error.code(), error.details() or ""
    if "too large" in details or "larger than max" in details:
        return AppendRefused(f"etcd rejects an entry that is too large: {details}")
    if code in _CERTAIN:
        return AppendRetryable(f"etcd accepts nothing: {details}")
    return None


def _fail(entries: Iterable[_Waiting], failure: AppendFailed) -> None:
    for entry in entries:
        if not entry.future.done():
            entry.future.set_exception(failure)
