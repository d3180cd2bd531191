"""Counting without a library: plain numbers, filled where every microsecond counts and shown elsewhere."""

from bisect import bisect_left


class Histogram:
    """How many values were at or below each bound, and their sum. Filled by one thread, read by any."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for what is above every bound
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)
