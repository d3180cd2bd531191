"""Names by the time at which something happened to them, so that the oldest are found without a search.

Time never runs backwards, but a state that is loaded has its rows by name: they are put in order one by one.
"""

from collections.abc import Iterator

from sortedcontainers import SortedList

from .walking import walk


class TimeIndex:
    """Names, each with a time in microseconds."""

    def __init__(self) -> None:
        self._moments: SortedList[tuple[int, str]] = SortedList()

    def __iter__(self) -> Iterator[str]:
        """All names, the oldest first; others may come and go meanwhile."""
        return (name for _, name in walk(self._moments))

    def add(self, at: int, name: str) -> None:
        """It happened to this one."""
        self._moments.add((at, name))

    def remove(self, at: int, name: str) -> None:
        """Forget one."""
        self._moments.remove((at, name))

    def remove_first(self, count: int) -> None:
        """Forget the oldest."""
        del self._moments[:count]

    def before(self, horizon: int) -> list[str]:
        """Those to which it happened before a time, the oldest first."""
        return [name for _, name in self._moments.irange(maximum=(horizon, ""), inclusive=(True, False))]

    def has_before(self, horizon: int) -> bool:
        """Whether there are any."""
        return bool(self._moments) and self._moments[0][0] < horizon

    def step_after(self, reached: int, count: int) -> int | None:
        """A time before which, from another on, lie so many; more if they are of one moment. None: of all."""
        first = self._moments.bisect_left((reached, ""))
        if first + count >= len(self._moments):
            return None
        return max(self._moments[first + count][0], self._moments[first][0] + 1)
