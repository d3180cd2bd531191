"""The expiry of a group's streams: proposes their ends and renewals when these are due."""

import asyncio
from collections.abc import Callable

from ...model.commands import AnyCommand, Expire
from ...model.outcomes import AnyOutcome, Ended
from ...model.state import State
from ..clock import Clock
from ..failures import Failure, Unavailable
from ..keeper import KeeperRole
from ..pacing import TimeSlice
from .batching import Reply, reply_to_future
from .deadlines import Deadlines
from .watermarks import Watermarks

SOON_SECONDS = 0.001
CHECK_SECONDS_MAX = 3600.0

Enqueue = Callable[[AnyCommand, Reply | None, int], None]
"""Adds a command, with the size of its messages, to the next batch."""


class Expiry:
    """Expires the streams of one group, from its first `tick` until it is stopped."""

    def __init__(
        self, state: State, clock: Clock, watermarks: Watermarks, enqueue: Enqueue, role: KeeperRole
    ) -> None:
        """Every node logs the reads that it has served; only the keeper ends streams that nobody asks for."""
        self.deadlines = Deadlines(state)
        self._clock = clock
        self._watermarks = watermarks
        self._enqueue = enqueue
        self._role = role
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_stopped = False
        self._next_round = 0  # how many commands must be finished before more ends are proposed

    def stop(self) -> None:
        """Propose nothing more."""
        self._is_stopped = True
        self._cancel_timer()

    def is_overdue(self, bucket: str, name: str) -> bool:
        """Whether the stream's deadline has passed and its end is not applied yet."""
        deadlines = self.deadlines
        return bool(deadlines.heap) and deadlines.overdue(bucket, name, self._clock()) is not None

    async def end_overdue(self, bucket: str, name: str) -> AnyOutcome | Failure:
        """End a stream whose deadline has passed."""
        overdue = self.deadlines.overdue(bucket, name, self._clock())
        if overdue is None:
            return Ended("")
        if self._is_stopped:
            return Unavailable("the server is stopping")
        future, reply = reply_to_future()
        self._enqueue(overdue, reply, 0)
        return await future

    def note_read(self, bucket: str, name: str) -> None:
        """Renew the TTL of a stream, since it was read."""
        if self.deadlines.heap and not self._is_stopped:
            renewal = self.deadlines.note_read(bucket, name, self._clock())
            if renewal is not None:
                self._enqueue(renewal, None, 0)

    async def track_deadlines(self, names: list[tuple[str, str]]) -> None:
        """Begin to track these streams, each with its bucket; they are from a checkpoint."""
        time_slice = TimeSlice()
        for bucket, name in names:
            self.deadlines.track(bucket, name)
            await time_slice.end()

    def track_deadline(self, bucket: str, name: str) -> None:
        """Begin to track a stream that has a deadline now."""
        before = self.deadlines.next_check()
        self.deadlines.track(bucket, name)
        if self._is_running and self.deadlines.next_check() != before:
            self.tick()

    def tick(self, may_expire: bool = False) -> None:
        """Propose some of the commands that are due, and set the timer for the rest.

        If more are due, they wait until the first ones are decided: no request should have to wait behind a
        great many streams that have expired.
        """
        self._is_running = True
        self._cancel_timer()
        if self._is_stopped:
            return
        now = self._clock()
        if self._watermarks.finished >= self._next_round:
            for command in self.deadlines.due(now, may_expire or self._role.is_held):
                self._enqueue(command, None, 0)
            if self.deadlines.is_due(now):
                self._next_round = self._watermarks.proposed
        next_check = self.deadlines.next_check()
        if next_check is not None:
            delay = min(max((next_check - now) / 1_000_000, SOON_SECONDS), CHECK_SECONDS_MAX)
            self._timer = asyncio.get_running_loop().call_later(delay, self.tick)

    def all_expired_are_proposed(self) -> bool:
        """Propose the ends that are due; returns whether none are left for later."""
        if self.deadlines.is_due(self._clock()):
            self.tick(may_expire=True)
        return not self.deadlines.is_due(self._clock())

    def find_overdue(self, command: AnyCommand) -> Expire | None:
        """The end that must be logged before a command, if it refers to a stream that has expired."""
        return self.deadlines.overdue_for(command, self._clock())  # type: ignore[arg-type]

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
