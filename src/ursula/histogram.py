"""A minimal histogram: it is filled where every microsecond counts, and exported elsewhere."""

from bisect import bisect_left


class Histogram:
    """The number of values per range, and their sum. One thread fills it, and any thread may read it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one counts values above all bounds
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)
