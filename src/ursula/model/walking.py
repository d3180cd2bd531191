"""A walk through very many names while others change them; to copy them all at once would take long."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedList

NAMES_AT_ONCE = 256

T = TypeVar("T")


def walk(names: "SortedList[T] | SortedDict[T, Any]") -> Iterator[T]:
    """All names in order. One that is there all the while is met once; one that comes or goes, perhaps."""
    some = list(islice(names, NAMES_AT_ONCE))
    while some:
        yield from some
        some = list(islice(names.irange(some[-1], inclusive=(False, True)), NAMES_AT_ONCE))
