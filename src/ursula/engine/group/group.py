"""A running group: its log, its state, and the requests in between.

One event loop owns a group; nothing here may be called from another thread. A command is proposed
with a callback: it joins the next batch, the batch becomes one log entry, the entry comes back
through `follow`, is applied, and the callbacks get their outcomes. While one batch is being made
durable the next one gathers; there is no timer.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ...cold.objects.store import StoreFailed
from ...log.interface import AppendFailed, AppendUnknown, Log
from ...model.codec import entry as entries
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
    StoreCommand,
)
from ...model.outcomes import (
    AnyOutcome,
    Appended,
    Created,
    Ended,
    Refused,
    Undeleted,
)
from ...model.state import State
from ..clock import AHEAD_SECONDS_MAX, SLEW, Clock, LogClock
from ..failures import Failure, OutcomeUnknown, Unavailable
from ..pacing import TimeSlice
from ..reads.reads import GroupReads
from ..reads.resolve_offsets import NeedsResolving, is_unresolved, resolve
from ..status import GroupStatus
from .batching import BatchQueue, Reply, creation_bytes, size_of
from .counters import Counters
from .evictor import Evictor
from .expiry import Expiry
from .fast_append import is_usual
from .watchers import Watchers

SLICE_SECONDS = 0.005
SOON_SECONDS = 0.001
PROBE_SECONDS = 1.0

_APPENDED = frozenset((Appended,))

logger = logging.getLogger(__name__)


def _awaited() -> tuple["asyncio.Future[AnyOutcome | Failure]", Reply]:
    """A future, and the callback that sets it, unless its caller has given up."""
    future: asyncio.Future[AnyOutcome | Failure] = asyncio.get_running_loop().create_future()

    def done(outcome: AnyOutcome | Failure) -> None:
        if not future.done():
            future.set_result(outcome)

    return future, done


class DecodedEntry(NamedTuple):
    """Commands on their way through the log, with those who wait for them."""

    at: int
    commands: list[AnyCommand]
    dones: list[Reply | None]
    body_bytes: int
    payload: bytes


class Group(GroupReads):
    """One log and one state machine."""

    def __init__(
        self,
        number: int,
        log: Log,
        clock: Clock,
        start: int,
        state: State | None = None,
        hot_bytes_max: int | None = None,
    ) -> None:
        super().__init__(state or State(number))
        self.number = number
        self.log = log
        self.applied = start
        self.watchers = Watchers()
        self.counts = Counters()
        self.recovered = False
        self.replay_target = start
        self._start = start
        self._clock = LogClock(clock, self.state.at)
        self._is_ahead = False
        self.hot_bytes_max = hot_bytes_max
        self.on_cut: dict[int, Callable[[], None]] = {}
        self.flush_wanted = False
        self.rejected_count = 0
        self._rejected_bytes = 1
        self.evictor = Evictor(self.state)
        self._expiry = Expiry(self.state)
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._proposer = secrets.randbits(63)
        self._gathering = BatchQueue(self._begin_batch)
        self._begun: tuple[DecodedEntry, Awaitable[int]] | None = None
        self._in_flight: deque[DecodedEntry] = deque()
        self._proposed = 0
        self._finished = 0
        self._late = 0
        self._expired_to = 0  # where some of very many ends were proposed
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._failed = False
        self.log_problem: str | None = None  # why the log does not take entries

    # Life

    async def run(self) -> None:
        """Replay the log, then serve until `stop`. Raises what made the group unable to go on."""
        self.replay_target = await self.log.tail()
        self._note_recovery()
        self._tasks = [asyncio.create_task(self._apply_entries()), asyncio.create_task(self._write_batches())]
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                self._give_up()
                task.result()

    def _give_up(self) -> None:
        """Nothing more will be written or applied here: tell those who wait for it."""
        self._stopping = self._failed = True
        for task in self._tasks:
            task.cancel()
        while self._in_flight:
            dones = self._in_flight.popleft().dones
            self._finish(dones, [OutcomeUnknown("the server failed")] * len(dones))
        dones = self._gathering.give_up()
        self._finish(dones, [Unavailable("the server failed")] * len(dones))

    async def stop(self) -> None:
        """Finish what was proposed, then close the log."""
        self._stopping = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self.evictor.stop()
        # Those who waited to be decided may propose once more when what they waited for is done.
        while self.recovered and self._finished < self._proposed:
            settled = asyncio.Event()
            self._when(self._proposed, 0, settled.set)
            await settled.wait()
        await self.log.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def progress(self) -> float:
        """How much of the log has been replayed, from 0 to 1."""
        span = self.replay_target - self._start
        if self.recovered or span <= 0:
            return 1.0 if self.recovered else 0.0
        return min(1.0, (self.applied - self._start) / span)

    def status(self) -> GroupStatus:
        """What an operator may see."""
        log, counts, state = self.log.measures, self.counts, self.state
        return GroupStatus(
            self.number,
            self.recovered,
            log.first,
            log.tail,
            self.applied,
            log.size_bytes,
            log.segment_count,
            log.sync_seconds,
            counts.batch_commands,
            counts.batch_bytes,
            counts.append_bytes,
            counts.append_messages,
            counts.entries_unavailable,
            counts.entries_unknown,
            self._proposed - self._finished,
            len(self.watchers),
            len(state.buckets),
            state.stream_count,
            self._clock.ahead_seconds,
        )

    # Writing

    def propose(
        self, command: AnyCommand, done: Reply, size: int = 0, json_problem: str | None = None
    ) -> None:
        """Have a command decided; `done` gets its outcome, perhaps before this returns.

        What the applied state already refuses is answered without being logged, once everything
        before it is applied. `json_problem`: see `decide_append`.
        """
        if self._stopping or not self.recovered:
            done(Unavailable("the server is stopping" if self._stopping else "the log is being replayed"))
            return
        added = size if type(command) is not Create else size + creation_bytes(command)
        if added and self._is_full(added):
            self.rejected_count += 1
            if added <= (self.hot_bytes_max or 0):  # a larger one waits until there is nothing else
                self._rejected_bytes = added
            message = "what is in memory must be flushed first, and that takes a while"
            done(Refused("write_backpressure", message))
            return
        is_unresolved_yet = type(command) is not Append and is_unresolved(command)
        if is_unresolved_yet and not self._resolve(command, done, size, json_problem):  # type: ignore[arg-type]
            return
        if self._expiry.heap and self._ends_first(command, done, size, json_problem):
            return
        outcome = self.state.look(command, json_problem)
        if outcome is None:
            self._proposed += 1
            self._gathering.add(command, done, size)
        elif self._finished == self._proposed and self.is_current:
            self._answer(command, outcome, done)
        else:
            self._when_settled(lambda: self._decide_again(command, done, size, json_problem))

    def append_fast(self, command: Append, done: Reply, size: int) -> bool:
        """Have a plain append decided, if nothing unusual is about it: see `fast_append`."""
        if self._stopping or not self.recovered or self._is_full(size):
            return False
        if not is_usual(self.state, command):
            return False
        self._proposed += 1
        self._gathering.add(command, done, size)
        return True

    def _ends_first(self, command: AnyCommand, done: Reply, size: int, json_problem: str | None) -> bool:
        """Whether streams have expired that must end before the command, which is proposed again then."""
        now = self._clock()
        if isinstance(command, DeleteBucket):
            if not self._expiry.is_due(now):
                return False
            self._expiry_tick()  # what has expired does not keep a bucket
            if not self._expiry.is_due(self._clock()):
                return False
            asyncio.get_running_loop().call_later(
                SOON_SECONDS, self.propose, command, done, size, json_problem
            )
            return True
        if isinstance(command, CreateBucket | IngestBegin | StoreCommand):
            return False
        overdue = self._expiry.overdue_for(command, now)
        if overdue is None:
            return False
        self._enqueue(overdue, _then(done, lambda: self.propose(command, done, size, json_problem)), 0)
        return True

    async def ask(
        self, command: AnyCommand, size: int | None = None, json_problem: str | None = None
    ) -> AnyOutcome | Failure:
        """The same, for callers that can wait."""
        future, done = _awaited()
        if isinstance(command, FlushBegin | Flushed | Merge | Collect) and not self._stopping:
            self._enqueue(command, done, 0)
        else:
            self.propose(command, done, size_of(command) if size is None else size, json_problem)
        return await future

    @property
    def is_full(self) -> bool:
        """Whether an append like the last one that was turned away would be turned away now."""
        return self._is_full(self._rejected_bytes)

    def _is_full(self, size: int) -> bool:
        """Whether so many bytes more are too many; one append always fits where there is nothing else."""
        held = self.state.gauge.count + self._gathering.body_bytes
        return self.hot_bytes_max is not None and held > 0 and held + size > self.hot_bytes_max

    def _resolve(self, command: NeedsResolving, done: Reply, size: int, json_problem: str | None) -> bool:
        """Whether the command can be decided as it is; if not, it is proposed with what it must say."""
        proven = resolve(self.state, command)
        if proven is None and self._cold is not None:
            task = asyncio.get_running_loop().create_task(
                self._resolve_later(command, done, size, json_problem)
            )
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            return False
        if proven is None or proven is command:
            return True
        self.propose(proven, done, size, json_problem)
        return False

    async def _resolve_later(
        self, command: NeedsResolving, done: Reply, size: int, json_problem: str | None
    ) -> None:
        """Find out from the store what the command says of old bytes, unless it is refused anyway."""
        try:
            found = await self._cold.resolve(command)  # type: ignore[union-attr]
        except StoreFailed as error:
            done(Unavailable(str(error)))
            return
        if isinstance(found, Refused):
            done(found)
        else:
            self.propose(found, done, size, json_problem)

    def _decide_again(self, command: AnyCommand, done: Reply, size: int, json_problem: str | None) -> None:
        outcome = self.state.look(command, json_problem)
        if self._failed:
            done(Unavailable("the server failed"))
        elif outcome is None and is_unresolved(command):
            self.propose(command, done, size, json_problem)  # what it speaks of was not there when it came
        elif outcome is None:
            self._enqueue(command, done, size)
            self._late = self._proposed
        elif self._finished < self._late:
            # Someone who waited before it was proposed just now, and that may change the decision.
            self._when(self._late, 0, lambda: self._decide_again(command, done, size, json_problem))
        else:
            self._answer(command, outcome, done)

    def _answer(self, command: AnyCommand, outcome: AnyOutcome, done: Reply) -> None:
        """Answer without logging. A repeated append stores nothing, but renews a window like the first."""
        if isinstance(command, Append) and isinstance(outcome, Appended):
            self.note_read(command.bucket, command.stream)
        done(outcome)

    def _enqueue(self, command: AnyCommand, done: Reply | None, size: int) -> None:
        self._proposed += 1
        self._gathering.add(command, done, size)

    async def _write_batches(self) -> None:
        self._gathering.log_is_idle()
        while True:
            if self._begun is None:
                # While the log fails, an empty entry shows whether it still does, even if nobody writes.
                await self._gathering.begun(None if self.log_problem is None else PROBE_SECONDS)
            if self._begun is None:
                self._begin_batch()
            (batch, appending), self._begun = self._begun, None  # type: ignore[misc]
            try:
                await appending
            except AppendFailed as error:
                self._in_flight.remove(batch)
                self._fail(batch, error)
            else:
                if batch.commands:
                    self.counts.committed(batch.commands, batch.body_bytes, len(batch.payload))
                if self.log_problem is not None:
                    self.log_problem = None
                    logger.info("the log takes entries again")
            self._gathering.log_is_idle()
            # What was just committed is answered first: who gets an answer comes back with more to write.
            await asyncio.sleep(0)

    def _begin_batch(self) -> None:
        """Hand what was gathered to the log."""
        commands, dones, body_bytes = self._gathering.take()
        at = self._clock()
        batch = DecodedEntry(at, commands, dones, body_bytes, entries.encode(self._proposer, at, commands))
        self._in_flight.append(batch)
        self._begun = batch, self.log.append(batch.payload)

    def _fail(self, batch: DecodedEntry, error: AppendFailed) -> None:
        if self.log_problem is None:
            logger.error("the log does not take entries: %s", error)
        self.log_problem = str(error)
        if not batch.commands:
            return
        if isinstance(error, AppendUnknown):
            self.counts.entries_unknown += 1
            failure: Failure = OutcomeUnknown(str(error))
        else:
            self.counts.entries_unavailable += 1
            failure = Unavailable(str(error))
        self._finish(batch.dones, [failure] * len(batch.dones))

    # Applying

    async def _apply_entries(self) -> None:
        slice_end = time.perf_counter() + SLICE_SECONDS
        async for position, payload in self.log.follow(self.applied):
            if self._in_flight and self._in_flight[0].payload == payload:
                batch = self._in_flight[0]
                self._apply(position, batch.at, batch.commands, batch.dones)
                self._in_flight.popleft()  # only now: who waits for it must be told if that fails
            else:
                _, at, commands = entries.decode(payload)
                self._apply(position, at, commands, None)
                if not self.recovered:
                    self._note_recovery()
            if time.perf_counter() > slice_end:
                await asyncio.sleep(0)
                slice_end = time.perf_counter() + SLICE_SECONDS

    def _apply(
        self, position: int, at: int, commands: list[AnyCommand], dones: list[Reply | None] | None
    ) -> None:
        state = self.state
        state.begin(position, at)
        self._clock.note(at)
        outcomes = state.apply_all(commands)
        self.applied = position
        self._note(commands, outcomes)
        if self.on_cut or state.residency.has_evictable:
            self._note_store(commands)
        if dones is not None:
            self._finish(dones, outcomes)
        elif self._waiting:
            self._run_waiting()
        if self.watchers:
            self.watchers.wake(commands, outcomes)

    def _note_store(self, commands: list[AnyCommand]) -> None:
        """A cut was made here, or something is stored or was trimmed, and may be let go of."""
        for command in commands:
            if isinstance(command, FlushBegin) and command.flusher in self.on_cut:
                self.state.make_cut()
                self.on_cut[command.flusher]()
        if self.state.residency.has_evictable:
            self.evictor.begin()

    def _note(self, commands: list[AnyCommand], outcomes: list[AnyOutcome]) -> None:
        """Take note of streams that have a deadline now, and of those that have ended."""
        if _APPENDED.issuperset(map(type, outcomes)):
            return
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(outcome, Ended):
                self._expiry.forget(outcome.incarnation)
            elif (
                isinstance(outcome, Undeleted) or (isinstance(outcome, Created) and outcome.new)
            ) and outcome.deadline is not None:
                self._look_after(command.bucket, command.stream)  # type: ignore[union-attr]

    def _finish(self, dones: list[Reply | None], outcomes: Sequence[AnyOutcome | Failure]) -> None:
        """Tell those who wait, and let go of each at once: what it holds is in the processor's cache then."""
        self._finished += len(dones)
        dones.reverse()
        for outcome in outcomes:
            done = dones.pop()
            if done is not None:
                try:
                    done(outcome)
                except Exception:
                    logger.exception("answering a request failed")
        if self._waiting:
            self._run_waiting()

    def _note_recovery(self) -> None:
        if self.applied >= self.replay_target:
            self.recovered = True
            self._expiry_tick()

    # Waiting

    @property
    def is_current(self) -> bool:
        """Whether the applied state holds everything acknowledged anywhere, as far as is known here."""
        tail = self.log.known_tail
        return tail is not None and self.applied >= tail

    async def current(self) -> None:
        """Wait until everything that is acknowledged now is applied."""
        applied = asyncio.Event()
        self._when(0, self._known_tail(), applied.set)
        await applied.wait()

    def _when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once everything proposed here or acknowledged anywhere before now is applied."""
        self._when(self._proposed, self._known_tail(), callback)

    def _known_tail(self) -> int:
        tail = self.log.known_tail
        if tail is None:
            raise NotImplementedError("a log whose tail must be asked for")
        return tail

    def _when(self, count: int, position: int, callback: Callable[[], None]) -> None:
        if self._finished >= count and self.applied >= position:
            callback()
        else:
            self._waiting.append((count, position, callback))

    def _run_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for count, position, callback in waiting:
            try:
                self._when(count, position, callback)
            except Exception:
                logger.exception("answering a request failed")

    # Time

    def look_at_clock(self) -> None:
        """Tell the operator if the time of the log is ahead of the machine's clock; called now and then."""
        ahead = self._clock.ahead_seconds
        if ahead <= AHEAD_SECONDS_MAX:
            self._is_ahead = False
        elif not self._is_ahead:
            self._is_ahead = True
            logger.warning(
                "the time of the log is %.0f s ahead of this machine's clock, which must have been set back: "
                "streams with Stream-Expires-At end that much too early, and TTLs run %.0f %% too long until "
                "the clock has caught up; check the clock",
                ahead,
                100 / SLEW - 100,
            )

    def look_at_deadlines(self) -> None:
        """End what has expired now, instead of when the timer says so: the clock has been moved."""
        if self.recovered:
            self._expiry_tick()

    def is_overdue(self, bucket: str, name: str) -> bool:
        """Whether the stream's deadline has passed and its end is not applied yet."""
        return bool(self._expiry.heap) and self._expiry.overdue(bucket, name, self._clock()) is not None

    async def end_overdue(self, bucket: str, name: str) -> AnyOutcome | Failure:
        """End a stream whose deadline has passed."""
        overdue = self._expiry.overdue(bucket, name, self._clock())
        if overdue is None:
            return Ended("")
        if self._stopping:
            return Unavailable("the server is stopping")
        future, done = _awaited()
        self._enqueue(overdue, done, 0)
        return await future

    def note_read(self, bucket: str, name: str) -> None:
        """A read renews a sliding window."""
        if self._expiry.heap and not self._stopping:
            renewal = self._expiry.seen(bucket, name, self._clock())
            if renewal is not None:
                self._enqueue(renewal, None, 0)

    async def look_after_all(self, names: list[tuple[str, str]]) -> None:
        """Begin with these streams, which have deadlines."""
        turn = TimeSlice()
        for bucket, name in names:
            self._expiry.add(bucket, name)
            await turn.end()

    def _look_after(self, bucket: str, name: str) -> None:
        before = self._expiry.next_look()
        self._expiry.add(bucket, name)
        if self.recovered and self._expiry.next_look() != before:
            self._expiry_tick()

    def _expiry_tick(self) -> None:
        """Propose some of what is due, and come back when more is.

        If that was not all, the rest waits until it is decided: nobody who asks for something must wait
        behind very many streams that have expired.
        """
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        if self._stopping:
            return
        now = self._clock()
        if self._finished >= self._expired_to:
            for command in self._expiry.due(now):
                self._enqueue(command, None, 0)
            if self._expiry.is_due(now):
                self._expired_to = self._proposed
        next_look = self._expiry.next_look()
        if next_look is not None:
            delay = min(max((next_look - now) / 1_000_000, SOON_SECONDS), 3600.0)
            self._expiry_timer = asyncio.get_running_loop().call_later(delay, self._expiry_tick)


def _then(done: Reply, following: Callable[[], None]) -> Reply:
    """Go on after an earlier command, unless that failed."""

    def go_on(outcome: AnyOutcome | Failure) -> None:
        if isinstance(outcome, Unavailable | OutcomeUnknown):
            done(outcome)
        else:
            following()

    return go_on
