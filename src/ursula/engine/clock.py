"""The clock is an argument, so that tests can set the time. Only ULIDs read the machine's clock directly."""

import logging
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since 1970."""

SLEW = 0.9
"""How fast the time of a log passes while it is ahead of the clock: slower, so that the clock catches up."""

AHEAD_SECONDS_MAX = 5.0
"""If the time of a log is further ahead of the clock than this, the operator is warned."""

logger = logging.getLogger(__name__)


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000


class LogClock:
    """The time that is written to a log. It never runs backwards, since the log's entries have happened.

    If the machine's clock was ahead and is set back, this clock continues from the latest time in the log, a
    little slower than the machine's clock. It must not stand still until that catches up: no TTL would end.
    """

    def __init__(self, clock: Clock, latest: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._latest = latest
        self._since = monotonic()
        self._has_warned = False

    def __call__(self) -> int:
        """The time now."""
        passed = (self._monotonic() - self._since) * 1_000_000
        return max(self._clock(), self._latest + int(passed * SLEW))

    def note(self, at: int) -> None:
        """Take note that the log has an entry with this time."""
        if at > self._latest:
            self._latest = at
            self._since = self._monotonic()

    @property
    def ahead_seconds(self) -> float:
        """How far the time of the log is ahead of the machine's clock."""
        return max(0.0, (self() - self._clock()) / 1_000_000)

    def warn_if_ahead(self) -> None:
        """Warn the operator, once, if the time of the log is ahead of the machine's clock."""
        ahead = self.ahead_seconds
        if ahead <= AHEAD_SECONDS_MAX:
            self._has_warned = False
        elif not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the time of the log is %.0f s ahead of this machine's clock, which must have been set back: "
                "streams with Stream-Expires-At end that much too early, and TTLs run %.0f %% too long until "
                "the clock has caught up; check the clock",
                ahead,
                100 / SLEW - 100,
            )
