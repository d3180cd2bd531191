"""Whether this node's clock is ahead of those of the other nodes, told for certain.

Nobody can look at two clocks at once, and any node may be frozen at any step. So only the order of events
counts: whoever has read my report did so after I wrote it. If my report says 10:00:05, and its reader's clock
said 10:00:02 after reading it, then my clock is ahead by at least 3 s, however long the report was on its
way. And if its report says 10:00:02, and my clock says 10:00:03 after I have read it, then I am ahead by at
most 1 s. Delays make a verdict later, never wrong.

Such a verdict takes a few seconds. So whoever has just started, or whose clock jumped ahead, is doubted until
the reports of the others prove either.

The median of the clocks counts. If there are two in the middle, as with two nodes, the one that is behind
counts: a fast clock ends streams early, and a slow one harms nobody, since the time of a log never goes back.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ..engine.clock import Clock
from ..engine.status.cluster_status import NodeReport

AHEAD_SECONDS_MAX = 2.0
SAMPLES_KEPT = 8
STEP_MICROSECONDS = 250_000
DOUBTED_EXCHANGES = 10
"""A clock is doubted for at most so many exchanges of reports: a proof needs about three."""

_MEGA = 1_000_000

logger = logging.getLogger(__name__)


class ClockCheck:
    """What the reports of the nodes prove about the clock of one of them."""

    def __init__(self, own: int, clock: Clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`own` is the number of this node."""
        self._own = own
        self._clock = clock
        self._monotonic = monotonic
        self._offset: float | None = None
        self._doubts_left = DOUBTED_EXCHANGES
        self._published: deque[int] = deque(maxlen=2 * SAMPLES_KEPT)
        self._last_at: dict[int, int] = {}
        self._at_least: dict[int, deque[int]] = {}
        self._at_most: dict[int, deque[int]] = {}
        self.heard: dict[int, tuple[int, int]] = {}
        """By node, the time of its last report, and what this clock said after reading it."""

    def begin_report(self) -> int:
        """The time of the next report."""
        now = self.look()
        self._published.append(now)
        return now

    def look(self) -> int:
        """The time now. Nothing from before the clock was set proves anything."""
        now = self._clock()
        offset = now - self._monotonic() * _MEGA
        step = 0.0 if self._offset is None else offset - self._offset
        self._offset = offset
        if abs(step) > STEP_MICROSECONDS:
            self._note_step(step / _MEGA)
        return now

    def _note_step(self, seconds: float) -> None:
        if seconds > AHEAD_SECONDS_MAX:
            logger.warning(
                "the clock of this node jumped ahead by %.1f s: nothing is written until it has been checked",
                seconds,
            )
        if seconds > AHEAD_SECONDS_MAX or self.problem is not None:
            self._doubts_left = DOUBTED_EXCHANGES
        for kept in (self._published, self._at_least, self._at_most, self._last_at, self.heard):
            kept.clear()

    def note(self, reports: Mapping[int, NodeReport]) -> None:
        """Take what the others have published; called when it was read just now."""
        now = self.look()
        for kept in (self._at_least, self._at_most, self._last_at, self.heard):
            for gone in kept.keys() - reports.keys():
                del kept[gone]
        for node, report in reports.items():
            if node == self._own or self._last_at.get(node) == report.at:
                continue
            self._last_at[node] = report.at
            self.heard[node] = report.at, now
            at_most = self._add(self._at_most, node, now - report.at)
            mine, theirs = report.heard.get(self._own, (0, 0))
            if mine in self._published:
                self._add(self._at_least, node, mine - theirs)
            at_least = self._at_least.get(node)
            if at_least and max(at_least) > min(at_most):  # the other clock was set meanwhile
                at_least.clear()
                at_most.clear()
                at_most.append(now - report.at)
        is_decided = not self._may_be_ahead or self.ahead_seconds > AHEAD_SECONDS_MAX
        self._doubts_left = 0 if is_decided else max(0, self._doubts_left - 1)

    @property
    def ahead_seconds(self) -> float:
        """By how much this clock is at least ahead of the median."""
        proven = [max(leads, default=-_MEGA * _MEGA) for leads in self._leads(self._at_least)]
        return max(0.0, _upper_median([0, *proven]) / _MEGA)

    @property
    def is_doubted(self) -> bool:
        """Whether this clock may be wrong, since the node has just started or the clock jumped ahead."""
        return self._doubts_left > 0

    @property
    def problem(self) -> str | None:
        """Why this clock is certainly wrong."""
        ahead = self.ahead_seconds
        if ahead <= AHEAD_SECONDS_MAX:
            return None
        return (
            f"the clock of this node is at least {ahead:.1f} s ahead of the median of the nodes, and would "
            "end streams early: set it right, for example with NTP"
        )

    @property
    def _may_be_ahead(self) -> bool:
        """Whether this clock may be too far ahead, for all that is known of those who have reported."""
        possible = [min(leads) for leads in self._at_most.values()]
        return _upper_median([0, *possible]) > AHEAD_SECONDS_MAX * _MEGA

    def _add(self, kept: dict[int, deque[int]], node: int, lead: int) -> deque[int]:
        leads = kept.setdefault(node, deque(maxlen=SAMPLES_KEPT))
        leads.append(lead)
        return leads

    def _leads(self, kept: Mapping[int, deque[int]]) -> Iterable[deque[int]]:
        return [kept.get(node, deque()) for node in self._last_at]


def _upper_median(leads: list[int]) -> int:
    return sorted(leads)[len(leads) // 2]
