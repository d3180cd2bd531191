"""How much of the machine a flush takes: little while it has time, more and more of it as memory fills up."""

from ...model.journal import Gauge
from ..pacing import Pace

RESTS = 3
"""How many times as long as a step took is rested after it, while there is time.

With more, more comes into memory before a flush is over: with 5, an idle stream took a tenth more in the end.
"""

LATE = 3
"""How many times `flush_size` there is in memory when a flush no longer rests."""


class FlushPace(Pace):
    """The pace of the flushes of one group. `somebody_waits` may be set at any time."""

    def __init__(self, hot: Gauge, flush_size: int, hot_bytes_max: int | None) -> None:
        self.somebody_waits = False
        self._hot = hot
        self._in_time = flush_size
        self._late = LATE * flush_size
        if hot_bytes_max is not None:  # long before appends are turned away
            self._late = min(self._late, hot_bytes_max // 2)

    def rest_ratio(self) -> float:
        """Many at first, none when it is late or somebody waits."""
        if self.somebody_waits or self.is_late():
            return 0.0
        behind = max(0, self._hot.count - self._in_time)
        return RESTS * (1 - behind / (self._late - self._in_time)) if behind else RESTS

    def is_late(self) -> bool:
        """Whether more is written than is flushed: then it must catch up, or appends are turned away."""
        return self._hot.count >= self._late
