"""How long a request may wait for the log.

When its time is up, a command that was never handed to the log is dropped and answered `Unavailable`: it is
certainly not written. So is a request that waits until the applied state is current. A command in a batch
that was handed to the log is answered `OutcomeUnknown`; the batch stays where it is, since the log continues
until it knows.

Commands are numbered in the order in which they are proposed, and every tick notes how many there were: so no
command needs a timestamp of its own.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from ..failures import OutcomeUnknown, Unavailable
from .log_writer import LogWriter
from .watermarks import Watermarks

TICKS = 20
"""How often deadlines are checked while a request waits."""


class WriteDeadlines:
    """The deadlines of the commands of one group."""

    def __init__(
        self,
        writer: LogWriter,
        watermarks: Watermarks,
        wait_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._watermarks = watermarks
        self._wait_seconds = wait_seconds
        self._monotonic = monotonic
        self._marks: deque[tuple[float, int]] = deque()

    async def run(self) -> None:
        """Check the deadlines until cancelled."""
        while True:
            await asyncio.sleep(self._wait_seconds / TICKS)
            self.tick()

    def tick(self) -> None:
        """Answer the commands whose time is up."""
        now = self._monotonic()
        reason = f"the log has not answered within {self._wait_seconds:g} s"
        self._watermarks.fail_since(now - self._wait_seconds, Unavailable(reason))
        overdue = 0
        while self._marks and self._marks[0][0] <= now - self._wait_seconds:
            _, overdue = self._marks.popleft()
        self._marks.append((now, self._writer.queue.added))
        if overdue:
            self._writer.drop(overdue, Unavailable(reason))
            self._writer.answer_in_flight(overdue, OutcomeUnknown(reason))
