"""The clock, as an argument: the only place where the engine learns what time it is."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since 1970."""

SLEW = 0.9
"""How fast the time of a log passes while it is ahead of the clock: slower, so that the clock catches up."""

AHEAD_SECONDS_MAX = 5.0
"""If the time of a log is further ahead of the clock than this, the operator must be told."""


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000


class LogClock:
    """The time that goes into a log. It never runs backwards, since what was logged has happened.

    If the machine's clock was set back after it had run ahead, this one goes on from the latest time in the
    log, a little slower than the clock. It must not stand still until the clock catches up: no TTL would end.
    """

    def __init__(self, clock: Clock, latest: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._latest = latest
        self._since = monotonic()

    def __call__(self) -> int:
        """The time now."""
        passed = (self._monotonic() - self._since) * 1_000_000
        return max(self._clock(), self._latest + int(passed * SLEW))

    def note(self, at: int) -> None:
        """The log has an entry of this time."""
        if at > self._latest:
            self._latest = at
            self._since = self._monotonic()

    @property
    def ahead_seconds(self) -> float:
        """How far the time of the log is ahead of the machine's clock."""
        return max(0.0, (self() - self._clock()) / 1_000_000)
