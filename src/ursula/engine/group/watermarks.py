"""The progress of a group, and the callbacks that wait until it has advanced far enough.

A refusal, or a read at the tail of a stream, may be sent only once the applied state is current: every
command proposed here earlier is decided, and every entry acknowledged anywhere earlier is applied. If this
node itself knows the tail of the log, a comparison is enough. If it must ask for the tail (`Log.known_tail`
is None), one call of `Log.tail` serves all callbacks that were waiting when it began, and a request that has
waited for one result does not need another.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from ...log.interface import Log, LogUnavailable
from ..background import BackgroundTasks
from ..failures import NotCurrent, Unavailable

logger = logging.getLogger(__name__)

Waiter = Callable[[Unavailable | None], None]
"""Gets None once the group has advanced far enough, or the reason why it never will."""


class Waiting(NamedTuple):
    """A callback: how many commands must be finished, which position applied, and since when it waits."""

    finished: int
    position: int
    waiter: Waiter
    since: float


class Watermarks:
    """How much was proposed, finished and applied in one group."""

    def __init__(self, log: Log, applied: int) -> None:
        self.proposed = 0
        """Commands that were proposed here since the start."""
        self.finished = 0
        """Those of them that got their reply."""
        self.applied = applied
        """The position of the last entry that was applied."""
        self.waiting: list[Waiting] = []
        """Callbacks for `advance`."""
        self._log = log
        self._without_tail: list[Waiting] = []  # wait for the next call of `Log.tail`
        self._asking: list[Waiting] = []  # wait for the call in progress
        self._asking_task: asyncio.Task[None] | None = None
        self._is_tail_unknown = False
        self._failure: Unavailable | None = None
        self._tasks = BackgroundTasks()

    def when_current(self, waiter: Waiter) -> None:
        """Call back once everything proposed here or acknowledged anywhere before now is applied."""
        self._when_at_tail(Waiting(self.proposed, 0, waiter, time.monotonic()))

    def when_finished(self, count: int, waiter: Waiter) -> None:
        """Call back once this many of the proposed commands are finished."""
        self._when(Waiting(count, 0, waiter, time.monotonic()))

    async def wait_until_current(self) -> None:
        """Wait until everything acknowledged before now is applied; NotCurrent if that cannot be known."""
        future, waiter = _future_waiter()
        self._when_at_tail(Waiting(0, 0, waiter, time.monotonic()))
        failure = await future
        if failure is not None:
            raise NotCurrent(failure.reason)

    async def wait_until_finished(self) -> None:
        """Wait until every proposed command is finished, including those proposed in the meantime."""
        while self.finished < self.proposed:
            future, waiter = _future_waiter()
            self.when_finished(self.proposed, waiter)
            await future

    def advance(self) -> None:
        """Call the callbacks that have waited long enough."""
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            try:
                self._when(one)
            except Exception:
                logger.exception("replying to a request failed")

    def fail_since(self, since: float, failure: Unavailable) -> None:
        """Fail the callbacks that have waited since this time, on the monotonic clock, or longer."""
        late: list[Waiting] = []
        for kept in (self.waiting, self._asking, self._without_tail):
            late += [one for one in kept if one.since <= since]
            kept[:] = [one for one in kept if one.since > since]
        _fail(late, failure)

    def give_up(self, failure: Unavailable) -> None:
        """Nothing more will be applied: fail all callbacks, present and future."""
        self._failure = failure
        self._tasks.cancel()
        waiting = [*self.waiting, *self._asking, *self._without_tail]
        self.waiting, self._asking, self._without_tail = [], [], []
        _fail(waiting, failure)

    def _when(self, waiting: Waiting) -> None:
        if self.finished >= waiting.finished and self.applied >= waiting.position:
            waiting.waiter(None)
        elif self._failure is not None:
            waiting.waiter(self._failure)
        else:
            self.waiting.append(waiting)

    def _when_at_tail(self, waiting: Waiting) -> None:
        tail = self._log.known_tail
        if tail is not None:
            self._when(waiting._replace(position=tail))
        elif self._failure is not None:
            waiting.waiter(self._failure)
        else:
            self._without_tail.append(waiting)
            if self._asking_task is None:
                self._asking_task = self._tasks.spawn(self._ask_for_tail())

    async def _ask_for_tail(self) -> None:
        """Ask until no callback waits for the tail. One that is added during a call waits for the next."""
        try:
            while self._without_tail:
                self._asking, self._without_tail = self._without_tail, []
                failure: Unavailable | None = None
                tail = 0
                try:
                    tail = await self._log.tail()
                    if self._is_tail_unknown:
                        self._is_tail_unknown = False
                        logger.warning("the log reports its tail again")
                except Exception as error:
                    failure = Unavailable(f"the log does not report its tail: {error}")
                    if not self._is_tail_unknown:  # once for each outage, whatever text its errors have
                        self._is_tail_unknown = True
                        trace = None if isinstance(error, LogUnavailable) else error
                        logger.warning("the log does not report its tail: %s", error, exc_info=trace)
                served, self._asking = self._asking, []
                if failure is not None:
                    _fail(served, failure)
                    continue
                for one in served:
                    try:
                        self._when(one._replace(position=tail))
                    except Exception:
                        logger.exception("replying to a request failed")
        finally:
            self._asking_task = None


def _fail(waiting: list[Waiting], failure: Unavailable) -> None:
    for one in waiting:
        try:
            one.waiter(failure)
        except Exception:
            logger.exception("replying to a request failed")


def _future_waiter() -> tuple["asyncio.Future[Unavailable | None]", Waiter]:
    """A future, and the waiter that sets it, unless its caller has given up."""
    future: asyncio.Future[Unavailable | None] = asyncio.get_running_loop().create_future()

    def waiter(failure: Unavailable | None) -> None:
        if not future.done():
            future.set_result(failure)

    return future, waiter
