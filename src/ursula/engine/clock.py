"""The clock is an argument, so that tests can set the time.

Only the names of objects, the age of unfinished files and the cursors of live reads come from the machine's
clock directly.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

Clock = Callable[[], int]
"""Microseconds since 1970."""

SLEW = 0.9
"""How fast the time of a log passes while it is ahead of the clock: slower, so that the clock catches up."""

AHEAD_SECONDS_MAX = 5.0
"""If the time of a log is further ahead of the clock than this, the operator is warned."""

logger = logging.getLogger(__name__)

MOVABLE_LOOK_SECONDS = 0.01
"""How often a movable clock checks whether it was moved."""


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000


class MovableClock:
    """The machine's clock plus the seconds in a file: a test makes time pass by writing the file.

    The file must be replaced atomically, since it is read on every call.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError or ValueError if the file does not contain a number of seconds."""
        self._path = path
        self._seconds()

    def __call__(self) -> int:
        """The time now."""
        return system_clock() + int(self._seconds() * 1_000_000)

    async def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` whenever the clock was moved, until cancelled: timers do not notice that."""
        before = self._seconds()
        while True:
            await asyncio.sleep(MOVABLE_LOOK_SECONDS)
            now = self._seconds()
            if now != before:
                before = now
                moved()

    def _seconds(self) -> float:
        return float(self._path.read_text())


class LogClock:
    """The time that is written to a log. It never runs backwards, since the log already has later entries.

    If the machine's clock was ahead and is set back, this clock continues from the latest time in the log, a
    little slower than the machine's clock. It must not stop until that catches up, since no TTL would end.
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
        """Note that the log has an entry with this time."""
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
