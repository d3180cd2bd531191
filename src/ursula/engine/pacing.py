"""Long work in small steps: between two of them everyone else goes on."""

import asyncio
import time

SLICE_SECONDS = 0.0005
"""Who waits for an answer waits for one of these at each step of it: two milliseconds made a flush felt."""

LATE_SLICE_SECONDS = 0.004
"""What may be felt, since those who write must wait for it anyway before long."""

REST_SECONDS_MIN = 0.001
"""A step on the loop is followed by at least this much time for others: with none, requests that arrive
during a flush of very many streams wait for many of its steps, not for one."""

REST_SECONDS_MAX = 0.05


class Pace:
    """How much of the machine long work takes. This one is for work that others wait for: it never rests."""

    def rest_ratio(self) -> float:
        """How many times as long as a step took is rested after it."""
        return 0.0

    def is_late(self) -> bool:
        """Whether there is nothing to be gained any more by going unnoticed."""
        return False


class TimeSlice:
    """Lets others go on when its time is up, for a while if what it does can wait."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._begin()

    async def end(self) -> None:
        """The end of a step on the event loop."""
        if self._is_over():
            await asyncio.sleep(max(REST_SECONDS_MIN, self._rest_seconds()))
            self._begin()

    def end_in_thread(self) -> None:
        """The end of a step in a thread of its own."""
        if self._is_over():
            time.sleep(self._rest_seconds())
            self._begin()

    def _begin(self) -> None:
        self._slice_seconds = LATE_SLICE_SECONDS if self._pace.is_late() else SLICE_SECONDS
        self._began_at = time.perf_counter()

    def _is_over(self) -> bool:
        return time.perf_counter() - self._began_at > self._slice_seconds

    def _rest_seconds(self) -> float:
        """A step takes longer where others want the machine too; then they get it for longer as well."""
        return min((time.perf_counter() - self._began_at) * self._pace.rest_ratio(), REST_SECONDS_MAX)
