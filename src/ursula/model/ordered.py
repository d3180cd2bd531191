"""Large collections of names in order: an index by time, and iteration while names come and go."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedList

NAMES_AT_ONCE = 256

T = TypeVar("T")


def iterate_while_changing(names: "SortedList[T] | SortedDict[T, Any]") -> Iterator[T]:
    """All names in order, copied a few at a time, since copying a great many at once takes too long.

    A name that is there throughout is returned once; one that comes or goes may or may not be returned.
    """
    some = list(islice(names, NAMES_AT_ONCE))
    while some:
        yield from some
        some = list(islice(names.irange(some[-1], inclusive=(False, True)), NAMES_AT_ONCE))


class TimeIndex:
    """Names, each with the time in microseconds at which something happened to it, oldest first.

    Time never runs backwards, but the rows of a loaded state come in the order of their names, so
    every name is inserted where it belongs.
    """

    def __init__(self) -> None:
        self._moments: SortedList[tuple[int, str]] = SortedList()

    def __iter__(self) -> Iterator[str]:
        """All names, oldest first; see `iterate_while_changing`."""
        return (name for _, name in iterate_while_changing(self._moments))

    def add(self, at: int, name: str) -> None:
        """Add a name with its time."""
        self._moments.add((at, name))

    def remove(self, at: int, name: str) -> None:
        """Remove a name."""
        self._moments.remove((at, name))

    def remove_first(self, count: int) -> None:
        """Remove the oldest names."""
        del self._moments[:count]

    def before(self, horizon: int) -> list[str]:
        """The names from before a time, oldest first."""
        return [name for _, name in self._moments.irange(maximum=(horizon, ""), inclusive=(True, False))]

    def step_after(self, reached: int, count: int) -> int | None:
        """A time such that about `count` names are between `reached` and it; None if fewer are left.

        There may be more, since names with the same time are never separated.
        """
        first = self._moments.bisect_left((reached, ""))
        if first + count >= len(self._moments):
            return None
        return max(self._moments[first + count][0], self._moments[first][0] + 1)
