"""Time slices: long work is done in short steps, and other work gets a turn between them."""

import asyncio
import time

SLICE_SECONDS = 0.0005
"""A request may wait for one of these at each of its steps: with two milliseconds, a flush was noticeable."""

LATE_SLICE_SECONDS = 0.004
"""Noticeable, but otherwise writers would soon have to wait for the flush."""

REST_SECONDS_MIN = 0.001
"""A step on the loop is followed by at least this much time for other work: otherwise, requests that arrive
during a flush of a great many streams would wait for many of its steps, not for one."""

REST_SECONDS_MAX = 0.05


class Pace:
    """How much of the machine long work uses. This pace never rests: a caller waits for the work."""

    def rest_ratio(self) -> float:
        """How long to rest after a step, as a multiple of the time that the step took."""
        return 0.0

    def is_late(self) -> bool:
        """Whether the work is so late that short steps are pointless."""
        return False


class TimeSlice:
    """Yields to other work when its time is up, and rests for a while if its pace says so."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._begin()

    async def end(self) -> None:
        """End a step on the event loop."""
        if self._is_over():
            await asyncio.sleep(max(REST_SECONDS_MIN, self._rest_seconds()))
            self._begin()

    def end_in_thread(self) -> None:
        """End a step in a thread of its own."""
        if self._is_over():
            time.sleep(self._rest_seconds())
            self._begin()

    def _begin(self) -> None:
        self._slice_seconds = LATE_SLICE_SECONDS if self._pace.is_late() else SLICE_SECONDS
        self._began_at = time.perf_counter()

    def _is_over(self) -> bool:
        return time.perf_counter() - self._began_at > self._slice_seconds

    def _rest_seconds(self) -> float:
        """A step takes longer when the machine is busy, and then the rest is longer as well."""
        return min((time.perf_counter() - self._began_at) * self._pace.rest_ratio(), REST_SECONDS_MAX)
