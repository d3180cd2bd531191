"""A running group: its log, its state, and the requests in between.

One event loop owns a group; nothing here may be called from another thread. A command is proposed with a
reply: it joins the next batch, the batch becomes one log entry, the entry comes back through `follow`, is
applied, and the replies get their outcomes. Reads are in `reads`, expiry is in `expiry`, writing to the log
in `log_writer`, and waiting until the applied state is current in `watermarks`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...log.interface import EntriesTrimmed, Entry, Log, LogUnavailable
from ...model.codec import entry as entries
from ...model.codec.entry import Batch, DecodedEntry, EntryUnreadable, StoredEntry
from ...model.commands import (
    AnyCommand,
    Append,
    Collect,
    Create,
    CreateBucket,
    DeleteBucket,
    FlushBegin,
    Flushed,
    IngestBegin,
    Merge,
    RequestFlush,
    StoreCommand,
)
from ...model.decide.refusals import stored_too_long_ago
from ...model.outcomes import AnyOutcome, Appended, Created, Ended, Refused, Undeleted
from ...model.state import State
from ..agreement import Sample, Samples
from ..clock import Clock, LogClock
from ..failures import FELL_BEHIND, Failure, OutcomeUnknown, Unavailable
from ..keeper import KeeperRole
from ..peers import Peers
from ..reads.cold_feed import FeedReads
from ..reads.cold_stream import ColdReads
from ..reads.reads import GroupReads
from ..reads.resolve_offsets import is_unresolved
from ..status.group_status import GroupStatus
from .batching import Reply, creation_bytes, reply_to_future, size_of
from .evictor import Evictor
from .expiry import SOON_SECONDS, Expiry
from .fast_append import is_usual
from .large_entries import LargeEntries, stored_at
from .log_writer import LogWriter
from .resolver import Resolver
from .watchers import Watchers
from .watermarks import Watermarks
from .write_deadlines import WriteDeadlines

SLICE_SECONDS = 0.005
LOG_RETRY_SECONDS = 1.0

_APPENDED = frozenset((Appended,))

logger = logging.getLogger(__name__)


class Group:
    """One log and one state machine. Implements `GroupApi`."""

    def __init__(
        self,
        number: int,
        log: Log,
        clock: Clock,
        start: int,
        state: State | None = None,
        *,
        hot_bytes_max: int | None = None,
        cold: ColdReads | None = None,
        feed: FeedReads | None = None,
        evictor: Evictor | None = None,
        role: KeeperRole | None = None,
        write_wait_seconds: float | None = None,
        large_entries: LargeEntries | None = None,
        peers: Peers | None = None,
    ) -> None:
        """`start` is the position of the state. Without `cold` and `feed`, nothing may have been flushed.

        Without a `role` and `peers` this is the only node, and its keeper. `write_wait_seconds` is how long a
        request may wait for the log: the log of a single node fails by itself, a shared one may be silent for
        long. A log with a limit needs `large_entries`.
        """
        self.number = number
        self.log = log
        self.state = state or State(number)
        self.reads = GroupReads(self.state, cold, feed)
        self.watchers = Watchers()
        self.evictor = evictor or Evictor(self.state)
        self.recovered = False
        self.replay_target = start
        self.hot_bytes_max = hot_bytes_max
        self.rejected_count = 0
        self.on_cut: dict[int, Callable[[], None]] = {}
        """Called at a cut, by the number of the flusher that requested it."""
        self.disagreement: str | None = None
        """Why this node must not serve the group: its state contradicts that of other nodes."""
        self._start = start
        self._clock = LogClock(clock, self.state.at)
        self._watermarks = Watermarks(log, start)
        self._large_entries = large_entries
        # Only nodes that share a log can disagree, and a hash costs time.
        self._samples = Samples(self.state) if log.known_tail is None else None
        self._writer = LogWriter(log, self._clock, self._finish, large_entries, peers)
        self._queue = self._writer.queue
        self._write_wait_seconds = write_wait_seconds
        self._deadlines = (
            None
            if write_wait_seconds is None
            else WriteDeadlines(self._writer, self._watermarks, write_wait_seconds)
        )
        self.expiry = Expiry(self.state, self._clock, self._watermarks, self._enqueue, role or KeeperRole())
        self._resolver = Resolver(self.state, cold, self.propose)
        self._rejected_bytes = 1
        self._last_late = 0  # how many commands had been proposed when one was last enqueued after a recheck
        self._tasks: list[asyncio.Task[None]] = []
        self._rejects: str | None = None  # why it accepts no command any more
        # Bound methods instead of methods that delegate, to save a call per read.
        self.read = self.reads.read
        self.read_records = self.reads.read_records
        self.read_feed = self.reads.read_feed
        self.describe = self.reads.describe
        self.describe_bucket = self.reads.describe_bucket
        self.list_streams = self.reads.list_streams
        self.plan = self.reads.plan
        self.note_read = self.expiry.note_read
        self.is_overdue = self.expiry.is_overdue
        self.end_overdue = self.expiry.end_overdue
        self.current = self._watermarks.wait_until_current

    # Lifecycle

    async def run(self) -> None:
        """Replay the log, then serve until `stop`. Raises the error that makes that impossible."""
        self.replay_target = await self._find_tail()
        self._note_recovery()
        work = [self._apply_entries(), self._writer.run()]
        if self._deadlines is not None:
            work.append(self._deadlines.run())
        self._tasks = [asyncio.create_task(one) for one in work]
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.abandon(FELL_BEHIND if isinstance(error, EntriesTrimmed) else "the server failed")
                task.result()

    async def _find_tail(self) -> int:
        """The tail of the log; waits while the log cannot be reached."""
        while True:
            try:
                return await self.log.tail()
            except LogUnavailable as error:
                logger.warning("waiting for the log: %s", error)
                await asyncio.sleep(LOG_RETRY_SECONDS)

    def abandon(self, reason: str) -> None:
        """Write and apply nothing more here: fail everything that waits for it."""
        self._rejects = reason
        for task in self._tasks:
            task.cancel()
        self.expiry.stop()
        self.evictor.stop()
        self._watermarks.give_up(Unavailable(reason))  # first: no command may be enqueued now
        self._writer.give_up(reason)

    async def stop(self) -> None:
        """Finish the commands that were proposed, then close the log."""
        self._rejects = "the server is stopping"
        self.expiry.stop()
        self.evictor.stop()
        if self.recovered:  # a command that waited to be decided may still be enqueued
            with suppress(TimeoutError):
                async with asyncio.timeout(self._write_wait_seconds):
                    await self._watermarks.wait_until_finished()
        self._writer.give_up("the server is stopping")
        await self.log.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watermarks.give_up(Unavailable("the server is stopping"))

    def contradict(self, reason: str) -> None:
        """Serve nothing more, since the state may be wrong: fail everything that waits for it.

        The log is still applied, so that it can be trimmed.
        """
        logger.critical("%s", reason)
        self.disagreement = self._rejects = reason
        self.expiry.stop()
        self._watermarks.fail_since(math.inf, Unavailable(reason))
        added = self._queue.added
        self._writer.drop(added, Unavailable(reason))
        self._writer.answer_in_flight(added, OutcomeUnknown(reason))

    def samples(self) -> list[Sample]:
        """The newest samples of the running hash; none if no other node shares the log."""
        return [] if self._samples is None else self._samples.newest()

    @property
    def applied(self) -> int:
        """The position of the last entry that was applied."""
        return self._watermarks.applied

    @property
    def progress(self) -> float:
        """How much of the log has been replayed, from 0 to 1."""
        span = self.replay_target - self._start
        if self.recovered or span <= 0:
            return 1.0 if self.recovered else 0.0
        return min(1.0, (self.applied - self._start) / span)

    @property
    def log_problem(self) -> str | None:
        """Why the log does not accept entries."""
        return self._writer.problem or self.log.space_problem

    def status(self) -> GroupStatus:
        """The status of the group, for operators."""
        log, counters, state = self.log.measures, self._writer.counters, self.state
        return GroupStatus(
            number=self.number,
            recovered=self.recovered,
            first=log.first,
            tail=log.tail,
            applied=self.applied,
            log_bytes=log.size_bytes,
            log_segment_count=log.segment_count,
            sync_seconds=log.sync_seconds,
            batch_commands=counters.batch_commands,
            batch_bytes=counters.batch_bytes,
            append_bytes=counters.append_bytes,
            append_messages=counters.append_messages,
            entries_unavailable=counters.entries_unavailable,
            entries_unknown=counters.entries_unknown,
            pending_commands=self._watermarks.proposed - self._watermarks.finished,
            watcher_count=len(self.watchers),
            bucket_count=len(state.buckets),
            stream_count=state.stream_count,
            clock_ahead_seconds=self._clock.ahead_seconds,
            disagreement=self.disagreement,
        )

    def warn_if_clock_is_behind(self) -> None:
        """Warn the operator if the machine's clock is behind the time of the log; called periodically."""
        self._clock.warn_if_ahead()

    @property
    def has_unfinished(self) -> bool:
        """Whether commands that were proposed here are not answered yet."""
        return self._watermarks.finished < self._watermarks.proposed

    @property
    def is_current(self) -> bool:
        """Whether the applied state has everything acknowledged anywhere, as far as this node knows."""
        tail = self.log.known_tail
        return tail is not None and self._watermarks.applied >= tail

    # Proposing

    def propose(
        self, command: AnyCommand, done: Reply, size: int = 0, json_problem: str | None = None
    ) -> None:
        """Have a command decided; `done` gets its outcome, perhaps before this returns.

        A command that the applied state already refuses is answered without being logged, once everything
        before it is applied. `json_problem`: see `decide_append`.
        """
        if self._rejects is not None or not self.recovered:
            done(Unavailable(self._rejects or "the log is being replayed"))
            return
        if self.log.space_problem is not None and type(command) is not RequestFlush:
            done(Unavailable(self.log.space_problem))
            return
        added = size if type(command) is not Create else size + creation_bytes(command)
        if added and self._is_full(added):
            self.rejected_count += 1
            if added <= (self.hot_bytes_max or 0):  # a larger one waits until memory is empty
                self._rejected_bytes = added
            message = "memory is full of data that must be flushed first, which takes a while"
            done(Refused("write_backpressure", message))
            return
        needs_resolving = type(command) is not Append and is_unresolved(command)
        if needs_resolving and not self._resolver.is_decidable(command, done, size, json_problem):  # type: ignore[arg-type]
            return
        if self.expiry.deadlines.heap and self._expire_first(command, done, size, json_problem):
            return
        outcome = self.state.look(command, json_problem)
        watermarks = self._watermarks
        if outcome is None:
            watermarks.proposed += 1
            self._queue.add(command, done, size)
        elif watermarks.finished == watermarks.proposed and self.is_current:
            self._answer(command, outcome, done)
        else:
            watermarks.when_current(lambda failure: self._recheck(failure, command, done, size, json_problem))

    def append_fast(self, command: Append, done: Reply, size: int) -> bool:
        """Have a plain append decided if there is nothing unusual about it: see `fast_append`."""
        if self._rejects is not None or not self.recovered or self._is_full(size):
            return False
        if self.log.space_problem is not None:
            return False
        if not is_usual(self.state, command):
            return False
        self._watermarks.proposed += 1
        self._queue.add(command, done, size)
        return True

    async def propose_and_wait(
        self, command: AnyCommand, size: int | None = None, json_problem: str | None = None
    ) -> AnyOutcome | Failure:
        """Propose a command and wait for its outcome."""
        future, reply = reply_to_future()
        if isinstance(command, FlushBegin | Flushed | Merge | Collect) and self._rejects is None:
            self._enqueue(command, reply, 0)
        else:
            self.propose(command, reply, size_of(command) if size is None else size, json_problem)
        return await future

    @property
    def is_full(self) -> bool:
        """Whether an append as large as the last rejected one would be rejected now."""
        return self._is_full(self._rejected_bytes)

    def _is_full(self, size: int) -> bool:
        """Whether this many more bytes are too many; if memory is empty, one append always fits."""
        hot_bytes = self.state.gauge.count + self._queue.body_bytes
        return self.hot_bytes_max is not None and hot_bytes > 0 and hot_bytes + size > self.hot_bytes_max

    def _expire_first(self, command: AnyCommand, done: Reply, size: int, json_problem: str | None) -> bool:
        """Whether streams must be ended before the command; if so, it is proposed again after that."""
        if isinstance(command, DeleteBucket):
            if self.expiry.all_expired_are_proposed():  # an expired stream does not keep its bucket
                return False
            asyncio.get_running_loop().call_later(
                SOON_SECONDS, self.propose, command, done, size, json_problem
            )
            return True
        if isinstance(command, CreateBucket | IngestBegin | StoreCommand):
            return False
        overdue = self.expiry.find_overdue(command)
        if overdue is None:
            return False
        self._enqueue(overdue, _then(done, lambda: self.propose(command, done, size, json_problem)), 0)
        return True

    def _recheck(
        self,
        failure: Unavailable | None,
        command: AnyCommand,
        done: Reply,
        size: int,
        json_problem: str | None,
    ) -> None:
        """Decide a command again that was refused on the basis of a state that was not current."""
        if failure is not None:
            done(failure)
            return
        outcome = self.state.look(command, json_problem)
        watermarks = self._watermarks
        if outcome is None and is_unresolved(command):
            self.propose(command, done, size, json_problem)  # the stream it refers to did not exist earlier
        elif outcome is None:
            self._enqueue(command, done, size)
            self._last_late = watermarks.proposed
        elif watermarks.finished < self._last_late:
            # A command that has waited longer has just been enqueued, which may change the decision.
            watermarks.when_finished(
                self._last_late, lambda failure: self._recheck(failure, command, done, size, json_problem)
            )
        else:
            self._answer(command, outcome, done)

    def _answer(self, command: AnyCommand, outcome: AnyOutcome, done: Reply) -> None:
        """Reply without logging. A repeated append stores nothing, but it renews the TTL."""
        if isinstance(command, Append) and isinstance(outcome, Appended):
            self.note_read(command.bucket, command.stream)
        done(outcome)

    def _enqueue(self, command: AnyCommand, reply: Reply | None, size: int) -> None:
        self._watermarks.proposed += 1
        self._queue.add(command, reply, size)

    # Applying

    async def _apply_entries(self) -> None:
        slice_end = time.perf_counter() + SLICE_SECONDS
        async for entry in self.log.follow(self.applied, self.state.entry_count, self._apply_own):
            if not self._apply_own(entry):
                await self._apply_decoded(*entry)
                if not self.recovered:
                    self._note_recovery()
            if time.perf_counter() > slice_end:
                await asyncio.sleep(0)
                slice_end = time.perf_counter() + SLICE_SECONDS

    def _apply_own(self, entry: Entry) -> bool:
        """Apply an entry if it is the oldest batch in flight, which need not be decoded.

        Usually it comes back as the very object that was handed to the log. Equal bytes are the same batch
        too, since they have its proposer and its time.
        """
        in_flight = self._writer.in_flight
        position, payload = entry
        if not in_flight or in_flight[0].payload != payload:
            return False
        batch = in_flight[0]
        self._apply(position, payload, batch.at, batch.commands, batch.replies, None, batch.stored)
        in_flight.popleft()  # only now: if applying it fails, `give_up` must still find it
        return True

    async def _apply_decoded(self, position: int, payload: bytes) -> None:
        """Apply an entry that may have batches of several nodes."""
        entry = entries.decode_any(payload)
        if not isinstance(entry, StoredEntry):
            self._apply(position, payload, entry.at, entry.commands, None, entry.batches, None)
        elif (own := self._writer.find_stored(entry)) is not None:
            self._apply(position, payload, own.at, own.commands, own.replies, None, own.stored)
            self._writer.remove(own)
        elif self.state.may_be_collected(stored_at(entry)):
            self._apply(position, payload, entry.at, [], None, None, entry)  # it counts nowhere
        else:
            fetched = await self._fetch(entry, position)
            self._apply(position, payload, entry.at, fetched.commands, None, fetched.batches, entry)

    async def _fetch(self, entry: StoredEntry, position: int) -> DecodedEntry:
        """Fetch an entry that is in the store."""
        if self._large_entries is None:
            raise EntryUnreadable(f"a log entry is in the blob {entry.blob}, and this group has no store")
        return await self._large_entries.get(entry, position)

    def _apply(
        self,
        position: int,
        payload: bytes,
        at: int,
        commands: list[AnyCommand],
        replies: list[Reply | None] | None,
        batches: list[Batch] | None,
        stored: StoredEntry | None,
    ) -> None:
        """Apply an entry: the commands of a batch that was proposed here, or the batches of any other."""
        state = self.state
        state.begin(position, at)
        self._clock.note(at)
        is_skipped = stored is not None and not state.note_entry_blob(stored.blob, stored_at(stored))
        if is_skipped:
            outcomes: list[AnyOutcome] = [stored_too_long_ago()] * len(commands)
        elif batches is None:
            outcomes = state.apply_all(commands)
        else:
            outcomes = state.apply_batches(batches)
        if self._samples is not None:
            # Only the proposer knows the commands of an entry that is skipped, so they do not count.
            state.hash_entry(payload, () if is_skipped else outcomes)
            self._samples.note_entry()
        self._watermarks.applied = position
        self._note_deadlines(commands, outcomes)
        if self.on_cut or state.residency.has_evictable:
            self._note_store(commands)
        if replies is not None:
            self._finish(replies, outcomes)
        else:
            if batches is not None and self._writer.in_flight:
                self._finish_own(batches, outcomes)
            if self._watermarks.waiting:
                self._watermarks.advance()
        if self.watchers:
            self.watchers.wake(commands, outcomes)

    def _note_store(self, commands: list[AnyCommand]) -> None:
        """Make the cut that a flusher of this group has requested, and evict stored and trimmed data.

        The next entry would make the cut too. But the flusher must capture the state as of the cut, and by
        the time of the next entry it is too late for that.
        """
        for command in commands:
            if isinstance(command, FlushBegin) and command.flusher in self.on_cut:
                self.state.make_cut()
                self.on_cut[command.flusher]()
        if self.state.residency.has_evictable:
            self.evictor.begin()

    def _note_deadlines(self, commands: list[AnyCommand], outcomes: list[AnyOutcome]) -> None:
        """Track the streams that have a deadline now, and forget those that have ended."""
        if _APPENDED.issuperset(map(type, outcomes)):
            return
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(outcome, Ended):
                self.expiry.deadlines.forget(outcome.incarnation)
            elif (
                isinstance(outcome, Undeleted) or (isinstance(outcome, Created) and outcome.new)
            ) and outcome.deadline is not None:
                self.expiry.track_deadline(command.bucket, command.stream)  # type: ignore[union-attr]

    def _finish(self, replies: list[Reply | None], outcomes: Sequence[AnyOutcome | Failure]) -> None:
        """Reply to each command, and free each reply at once, while its memory is in the CPU's cache."""
        self._watermarks.finished += len(replies)
        replies.reverse()
        for outcome in outcomes:
            reply = replies.pop()
            if reply is not None:
                try:
                    reply(outcome)
                except Exception:
                    logger.exception("replying to a request failed")
        if self._watermarks.waiting:
            self._watermarks.advance()

    def _finish_own(self, batches: list[Batch], outcomes: list[AnyOutcome]) -> None:
        """Reply to the commands of those batches of an entry that were proposed here."""
        first = 0
        for batch in batches:
            last = first + len(batch.commands)
            own = self._writer.find(batch)
            if own is not None:
                self._finish(own.replies, outcomes[first:last])
                self._writer.remove(own)
            first = last

    def _note_recovery(self) -> None:
        if self.applied >= self.replay_target:
            self.recovered = True
            self.expiry.tick()


def _then(done: Reply, following: Callable[[], None]) -> Reply:
    """The reply to an earlier command: calls `following` unless the log did not accept that command."""

    def reply(outcome: AnyOutcome | Failure) -> None:
        was_rejected = isinstance(outcome, Refused) and outcome.code == "internal_error"
        if was_rejected or isinstance(outcome, Unavailable | OutcomeUnknown):
            done(outcome)
        else:
            following()

    return reply
