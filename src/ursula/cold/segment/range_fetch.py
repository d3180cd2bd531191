"""Stretches of objects that are far away, for who reads one behind the other.

A request ends at the border of a part wherever one is near: a store keeps parts as they were sent, and what
begins or ends in the middle of one costs it the whole. What was fetched too much is the next one's beginning.
"""

from collections.abc import Sequence

from ..objects.store import PART_BYTES, Store
from .segment import ROW_GROUP_BYTES, Span

RESTS_MAX = 8
"""Of so many readers the rest is kept, at most a row group each."""


class Stretch:
    """Bytes of an object that came in two pieces."""

    def __init__(self, start: int, head: bytes, tail: bytes | memoryview) -> None:
        self._start = start
        self._head = head
        self._tail = memoryview(tail)

    def between(self, start: int, end: int) -> bytes | memoryview:
        """Some of them, copied only where they lie in both pieces."""
        start, end = start - self._start, end - self._start
        size = len(self._head)
        if start >= size:
            return self._tail[start - size : end - size]
        return self._head[start:end] + self._tail[: max(0, end - size)]


class Stretches:
    """The stretches of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: dict[tuple[str, int], bytes] = {}

    async def get(self, key: str, start: int, end: int, size: int) -> Stretch:
        """What lies between two places in an object of this size."""
        head = self._rests.pop((key, start), b"")
        begin, border = start + len(head), _border_from(end)
        last = border if border - end <= ROW_GROUP_BYTES and border < size else end
        tail = memoryview(await self._store.get_range(key, begin, last))
        if last > end:
            self._rests[key, end] = bytes(tail[end - begin :])
            while len(self._rests) > RESTS_MAX:
                del self._rests[next(iter(self._rests))]
        return Stretch(start, head, tail)


def up_to_border(spans: Sequence[Span]) -> Sequence[Span]:
    """Of row groups one behind the other, those before the last border of parts; all if there is none."""
    border = spans[-1].end // PART_BYTES * PART_BYTES
    before = [span for span in spans if span.end <= border]
    return before or spans


def _border_from(place: int) -> int:
    return -(-place // PART_BYTES) * PART_BYTES
