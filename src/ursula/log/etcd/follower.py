"""Follows the entries of a group: by a watch, and by reading keys where the history for a watch is compacted.

A watch may be silent forever, if its member is frozen or cut off. `EtcdLog` notices that, and has the watch
begun again at another member.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import grpc
from aetcd import rpc

from ursula.etcd.client import (
    CALL_SECONDS,
    PAUSE_SECONDS,
    EtcdClient,
    EtcdRefused,
    EtcdUnavailable,
    is_being_cancelled,
)
from ursula.log.etcd.entry_pages import list_entries
from ursula.log.etcd.keys import GroupKeys
from ursula.log.interface import COUNTER_MASK, EntriesTrimmed, Entry, LogDamaged

VALUES_AT_ONCE = 64
"""How many values are read at a time, of about 128 KiB; fewer are, if they do not arrive in time."""

READ_SECONDS = 2.0

_WITH_LEADER = (("hasleader", "true"),)


class EtcdFollower:
    """The entries of one group after a position, for one reader. A cancelled `anext` loses nothing."""

    def __init__(
        self,
        client: EtcdClient,
        keys: GroupKeys,
        base: int,
        *,
        after: int,
        count: int | None,
        on_entry: Callable[[Entry], None],
    ) -> None:
        """`count` is how many entries the reader has applied up to the position, if it knows."""
        self._client = client
        self._keys = keys
        self._base = base
        self.position = max(after, base)
        """The position up to which it has everything."""
        self._count = count
        self._on_entry = on_entry
        self._ready: deque[Entry] = deque()
        self._unread: deque[Any] = deque()  # keys of entries whose values are to be read
        self._unread_revision = 0
        self._values_at_once = VALUES_AT_ONCE
        self._watch: Any = None
        self._incomplete: Any = None  # an entry whose head has not arrived yet
        self._is_watching = False
        self._silent_at, self._silent_since = self.position, time.monotonic()
        self._is_ended = False
        self.member = client.current
        """The member that it follows."""

    def __aiter__(self) -> "EtcdFollower":
        return self

    async def __anext__(self) -> Entry:
        while not self._ready:
            if self._is_ended:
                raise StopAsyncIteration
            await self._receive()
        return self._ready.popleft()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it follows another member than the one that calls go to."""
        return self._watch is not None and self.member is not self._client.current

    def is_silent(self, tail: int, seconds: float) -> bool:
        """Whether its watch delivered nothing for `seconds` although the log has entries up to `tail`."""
        now = time.monotonic()
        if not self._is_watching or self.position >= tail or self.position != self._silent_at:
            self._silent_at, self._silent_since = self.position, now
        return now - self._silent_since >= seconds

    def restart(self) -> None:
        """Follow from the same position again, perhaps another member, which is given time to answer."""
        self._silent_since = time.monotonic()
        if self._watch is not None:
            self._watch.cancel()

    def end(self) -> None:
        """Deliver no more entries."""
        self._is_ended = True
        self.restart()

    async def _receive(self) -> None:
        """Wait for more entries; there may be none yet when this returns."""
        try:
            if self._unread:
                await self._read_values()
            elif self._watch is None:
                await self._begin_watch()
            else:
                await self._read_watch()
        except (
            grpc.aio.AioRpcError,
            grpc.aio.UsageError,  # the connection was closed
            asyncio.InvalidStateError,
            EtcdUnavailable,
            TimeoutError,
        ):
            self._drop_watch()
            if not self._is_ended:
                self._client.turn_from(self.member)
                await asyncio.sleep(PAUSE_SECONDS)
        except EtcdRefused as error:
            if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise LogDamaged("etcd", "its keys", str(error), "See the log of etcd") from None
            self._unread.clear()  # the revision that was read at is compacted
        except asyncio.CancelledError:  # of this task, or of the watch alone
            self._drop_watch()
            if is_being_cancelled():
                raise

    # The watch

    async def _begin_watch(self) -> None:
        self.member = self._client.current
        self._watch = self.member.watch.Watch(metadata=_WITH_LEADER)
        request = rpc.WatchCreateRequest(
            key=self._keys.entries,
            range_end=self._keys.head_end,
            start_revision=(self.position & COUNTER_MASK) + 1,
            filters=[rpc.WatchCreateRequest.NODELETE],
            fragment=True,
        )
        await asyncio.wait_for(self._watch.write(rpc.WatchRequest(create_request=request)), CALL_SECONDS)

    def _drop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._incomplete = None

    async def _read_watch(self) -> None:
        """Take the next events. An entry is complete with the head, which is written with it."""
        self._is_watching = True
        try:
            answer = await self._watch.read()
        finally:
            self._is_watching = False
        if answer is grpc.aio.EOF or answer.canceled:
            is_compacted = answer is not grpc.aio.EOF and answer.compact_revision
            self._drop_watch()
            if is_compacted:
                await self._find_unread()
            else:
                self._client.turn_from(self.member)
            return
        for event in answer.events:
            if event.kv.key != self._keys.head:
                self._incomplete = event.kv
            else:
                self._take(event.kv.version, self._incomplete, event.kv.mod_revision)

    # The keys

    async def _find_unread(self) -> None:
        """Find the entries after the position at one revision. Their values follow, some at a time."""
        keys, op, after = self._keys, rpc.RequestOp, self.position & COUNTER_MASK
        request = rpc.TxnRequest(
            success=[
                op(request_range=rpc.RangeRequest(key=keys.trimmed)),
                op(request_range=rpc.RangeRequest(key=keys.head, keys_only=True)),
            ]
        )
        answer = await self._client.call(lambda member: member.kv.Txn, request, READ_SECONDS)
        trimmed, head = (response.response_range.kvs for response in answer.responses)
        first = int(trimmed[0].value) if trimmed else self._base
        if self.position < first:
            raise EntriesTrimmed(self.position, first)
        pages = list_entries(self._client, keys, answer.header.revision)
        found = [entry async for page in pages for entry in page if entry.mod_revision > after]
        count = (head[0].version if head else 0) - len(found)
        if self._count not in (None, count):
            raise self._damaged(count)
        self._count = count
        self._unread.extend(sorted(found, key=lambda entry: entry.mod_revision))
        self._unread_revision = answer.header.revision
        if not found:
            self.position = max(self.position, self._base + answer.header.revision)

    async def _read_values(self) -> None:
        part = islice(self._unread, self._values_at_once)
        ranges = [rpc.RangeRequest(key=entry.key, revision=self._unread_revision) for entry in part]
        request = rpc.TxnRequest(success=[rpc.RequestOp(request_range=one) for one in ranges])
        try:
            answer = await self._client.call(lambda member: member.kv.Txn, request, READ_SECONDS)
        except EtcdUnavailable:
            self._values_at_once = max(1, self._values_at_once // 2)
            raise
        self._values_at_once = min(VALUES_AT_ONCE, self._values_at_once * 2)
        for response in answer.responses:
            found = response.response_range.kvs[0]
            self._take((self._count or 0) + 1, found, found.mod_revision)
            self._unread.popleft()
        if not self._unread:
            self.position = max(self.position, self._base + self._unread_revision)

    # The order

    def _take(self, count: int, found: Any, revision: int) -> None:
        """Take the next entry, if it is exactly the next one."""
        if found is None or found.mod_revision != revision or self._count not in (None, count - 1):
            raise self._damaged(count - 1)
        self._count = count
        self._incomplete = None
        self.position = self._base + revision
        entry = Entry(self.position, found.value)
        self._ready.append(entry)
        self._on_entry(entry)

    def _damaged(self, count: int) -> LogDamaged:
        problem = f"the log has {count} entries up to there, and this node has {self._count}"
        hint = "Stop this node, remove its data folder and start it again: it then starts from the store"
        return LogDamaged("etcd", f"position {self.position}", problem, hint)
