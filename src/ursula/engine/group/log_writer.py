"""Writes batches to the log of a group, one at a time; while one is being made durable, the next one grows.

There is no timer: see `batching` for when a batch begins.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from ...cold.objects.store import StoreFailed
from ...log.interface import AppendFailed, AppendRefused, AppendRetryable, AppendUnknown, Log
from ...model.codec import entry as entries
from ...model.codec.entry import Batch, StoredEntry, VersionTooLow
from ...model.commands import AnyCommand
from ...model.outcomes import AnyOutcome, Refused
from ..clock import Clock
from ..failures import Failure, OutcomeUnknown, Unavailable
from ..peers import Peers
from .batching import COMMAND_BYTES, BatchQueue, NextBatch, Reply
from .counters import Counters
from .large_entries import LargeEntries

PROBE_SECONDS = 1.0

logger = logging.getLogger(__name__)

Finish = Callable[[list[Reply | None], Sequence[AnyOutcome | Failure]], None]
"""Replies to the commands of a batch."""


class InFlightBatch(NamedTuple):
    """Commands on their way through the log, with the replies that wait for their outcomes."""

    at: int
    commands: list[AnyCommand]
    replies: list[Reply | None]
    body_bytes: int
    payload: bytes
    first: int
    """The number of its first command: see `BatchQueue.taken`."""
    stored: StoredEntry | None = None
    """The blob that it is in, if it is too large for the log."""


class LogWriter:
    """Writes the batches of one group. `finish` replies to the commands of a batch that was not written."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        finish: Finish,
        large_entries: LargeEntries | None = None,
        peers: Peers | None = None,
    ) -> None:
        """Without `large_entries`, the log must not have a limit. Without `peers`, this is the only node."""
        is_limited = log.entry_bytes_max is not None
        self.queue = BatchQueue(self._begin, log.batch_bytes, COMMAND_BYTES if is_limited else 0)
        self._large_entries = large_entries
        self._peers = peers or Peers()
        self.in_flight: deque[InFlightBatch] = deque()
        """Oldest first; the group removes a batch when it applies it."""
        self.counters = Counters()
        self._problem: str | None = None
        self._log = log
        self._clock = clock
        self._finish = finish
        self._proposer = secrets.randbits(63)
        self._last_at = 0
        self._begun: tuple[InFlightBatch, Awaitable[int]] | None = None

    @property
    def problem(self) -> str | None:
        """Why the log does not accept entries, or why this node writes none."""
        return self._peers.write_problem or self._problem

    async def run(self) -> None:
        """Write batches until cancelled."""
        self.queue.log_is_idle()
        while True:
            if self._begun is None:
                # While the log fails, an empty entry shows whether it still does, even without any writes.
                await self.queue.wait(None if self._problem is None else PROBE_SECONDS)
            if self._begun is None:
                self._begin()
            (batch, appending), self._begun = self._begun, None  # type: ignore[misc]
            try:
                await appending
            except (AppendFailed, VersionTooLow) as error:
                if self.remove(batch):  # otherwise it was applied, and only the answer of the log was lost
                    self._fail(batch, error)
            else:
                if batch.commands:
                    self.counters.committed(batch.commands, batch.body_bytes, len(batch.payload))
                if self._problem is not None:
                    self._problem = None
                    logger.info("the log accepts entries again")
            self.queue.log_is_idle()
            # Replies to the committed commands come first: their clients will then have more to write.
            await asyncio.sleep(0)

    def give_up(self, reason: str) -> None:
        """Nothing more will be written or applied: fail everything that waits for it."""
        if self._begun is not None and asyncio.iscoroutine(self._begun[1]):
            self._begun[1].close()  # it was not even started
        while self.in_flight:
            replies = self.in_flight.popleft().replies
            self._finish(replies, [OutcomeUnknown(reason)] * len(replies))
        self.drop(self.queue.added, Unavailable(reason))

    def drop(self, upto: int, failure: Failure) -> None:
        """Reply with a failure to the commands up to this number that were not handed to the log yet."""
        replies = self.queue.drop(upto)
        if replies:
            self._finish(replies, [failure] * len(replies))

    def answer_in_flight(self, upto: int, outcome: OutcomeUnknown) -> None:
        """Answer the commands up to this number that were handed to the log; their batches stay in flight."""
        replies: list[Reply] = []
        for batch in self.in_flight:
            count = min(len(batch.replies), max(0, upto - batch.first))
            replies += [reply for reply in batch.replies[:count] if reply is not None]
            batch.replies[:count] = [None] * count
        for reply in replies:  # only now: a reply may propose the next command
            try:
                reply(outcome)
            except Exception:
                logger.exception("replying to a request failed")

    def find(self, batch: Batch) -> InFlightBatch | None:
        """The batch in flight that has come back in an entry; None if it is not from here.

        A proposer gives no two batches the same time, so the two numbers name one batch. A batch that failed
        as unknown and comes back after all is no longer in flight, and no other is taken for it.
        """
        if batch.proposer != self._proposer:
            return None
        return next((one for one in self.in_flight if one.at == batch.at), None)

    def find_stored(self, stored: StoredEntry) -> InFlightBatch | None:
        """The batch in flight that is in this blob, if there is one."""
        return next((one for one in self.in_flight if one.stored == stored), None)

    def remove(self, batch: InFlightBatch) -> bool:
        """Remove a batch from those in flight; returns False if the group has applied it already."""
        for place, one in enumerate(self.in_flight):
            if one is batch:
                del self.in_flight[place]
                return True
        return False

    def _begin(self) -> None:
        """Hand the next batch to the log."""
        first = self.queue.taken
        taken = self.queue.next_batch()
        at = self._clock()
        if at <= self._last_at:
            at = self._last_at + 1  # no two batches have the same time: see `find`
        problem = self._peers.write_problem  # only now: a clock that has jumped since gave the right time
        if problem is not None:
            self.in_flight.append(self._reject(at, first, taken, AppendRetryable(problem)))
            return
        self._last_at = at  # only now: no later batch has to come after a time that may be wrong
        version = self._peers.entry_version
        if version < entries.ENTRY_VERSION:
            taken = self._expressible(taken, version)
        limit = self._log.entry_bytes_max
        try:
            payload = entries.encode(self._proposer, at, taken.commands, version)
        except VersionTooLow as error:
            batch = self._reject(at, first, taken, error)
        else:
            if limit is None or len(payload) <= self._log.batch_bytes:
                batch = InFlightBatch(at, *taken, payload, first)
                self._begun = batch, self._log.append(payload)
            else:
                batch = self._begin_bounded(at, first, taken, limit, version)
        self.in_flight.append(batch)

    def _reject(self, at: int, first: int, taken: NextBatch, error: Exception) -> InFlightBatch:
        """Have a batch fail in its turn, without handing it to the log."""
        batch = InFlightBatch(at, *taken, b"", first)
        self._begun = batch, _rejected(error)
        return batch

    def _expressible(self, taken: NextBatch, version: int) -> NextBatch:
        """Put back the commands after the first one that entries of this version cannot have.

        That one becomes a batch of its own, which is not written.
        """
        commands = taken.commands
        place = next((n for n, one in enumerate(commands) if not entries.is_expressible(one, version)), None)
        return taken if place is None else self.queue.put_back(taken, max(1, place))

    def _begin_bounded(
        self, at: int, first: int, taken: NextBatch, bytes_max: int, version: int
    ) -> InFlightBatch:
        """Hand fewer commands to the log than make too large an entry; a single one may go to the store."""
        payload = entries.encode(self._proposer, at, taken.commands, version)
        while len(taken.commands) > 1 and len(payload) > self._log.batch_bytes:
            taken = self.queue.put_back(taken, len(taken.commands) // 2)
            payload = entries.encode(self._proposer, at, taken.commands, version)
        if len(payload) <= bytes_max or self._large_entries is None:
            batch = InFlightBatch(at, *taken, payload, first)
            self._begun = batch, self._log.append(payload)
        else:
            entry = self._large_entries.name(at, payload)
            try:
                batch = InFlightBatch(at, *taken, entries.encode_stored(entry, version), first, entry)
            except VersionTooLow as error:
                return self._reject(at, first, taken, error)
            storing = partial(self._large_entries.put, entry, payload)
            self._begun = batch, self._append_stored(storing, batch.payload)
        return batch

    async def _append_stored(self, store: Callable[[], Awaitable[None]], payload: bytes) -> int:
        """Store an entry that is too large for the log, then log its name."""
        try:
            await store()
        except StoreFailed as error:
            raise AppendRetryable(
                f"an entry is too large for the log, and was not stored: {error}"
            ) from error
        return await self._log.append(payload)

    def _fail(self, batch: InFlightBatch, error: AppendFailed | VersionTooLow) -> None:
        """Fail a batch that was not acknowledged: as refused, unavailable or unknown."""
        failure: Failure | Refused
        if isinstance(error, VersionTooLow):
            self.counters.entries_unavailable += bool(batch.commands)
            self._finish(batch.replies, [Unavailable(str(error))] * len(batch.replies))
            return
        if isinstance(error, AppendRefused):
            logger.error("the log rejected an entry: %s", error)
            self.counters.entries_unavailable += bool(batch.commands)
            failure = Refused("internal_error", f"the log rejected the entry: {error}")
            self._finish(batch.replies, [failure] * len(batch.replies))
            return
        if self._problem is None:
            logger.error("the log does not accept entries: %s", error)
        self._problem = str(error)
        if not batch.commands:
            return
        if isinstance(error, AppendUnknown):
            self.counters.entries_unknown += 1
            failure = OutcomeUnknown(str(error))
        else:
            self.counters.entries_unavailable += 1
            failure = Unavailable(str(error))
        self._finish(batch.replies, [failure] * len(batch.replies))


async def _rejected(error: Exception) -> int:
    """An append that fails without reaching the log."""
    raise error
