"""How much of the machine a flush uses: little at first, and more and more as memory fills up."""

from ...model.journal import Gauge
from ..pacing import Pace

REST_RATIO = 3
"""A flush that is not late rests this many times as long as the step before took.

With a larger ratio, more is written to memory before a flush ends: with 5, an idle stream ended up with a
tenth more memory.
"""

LATE_RATIO = 3
"""A flush no longer rests once this many times `flush_size` is in memory."""


class FlushPace(Pace):
    """The pace of the flushes of one group. `caller_waits` may be set at any time."""

    def __init__(self, hot: Gauge, flush_size: int, hot_bytes_max: int | None) -> None:
        self.caller_waits = False
        self._hot = hot
        self._in_time = flush_size
        self._late = LATE_RATIO * flush_size
        if hot_bytes_max is not None:  # long before appends are rejected
            self._late = min(self._late, hot_bytes_max // 2)

    def rest_ratio(self) -> float:
        """High at first; zero when the flush is late or a caller waits for it."""
        if self.caller_waits or self.is_late():
            return 0.0
        behind = max(0, self._hot.count - self._in_time)
        return REST_RATIO * (1 - behind / (self._late - self._in_time)) if behind else REST_RATIO

    def is_late(self) -> bool:
        """Whether more is written than flushed: the flush must catch up, or appends will be rejected."""
        return self._hot.count >= self._late
