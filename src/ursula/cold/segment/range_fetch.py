"""Range requests to a remote store, for readers that fetch one range after another.

A request ends at the boundary of an upload part if one is near: a store keeps parts as they were sent, and
reads a whole part for a range that begins or ends inside it. The surplus bytes are kept, since the next range
begins with them.
"""

from collections.abc import Sequence

from ..objects.store import PART_BYTES, Store
from .footer import RowGroup
from .schema import ROW_GROUP_BYTES

SURPLUS_MAX = 8
"""For how many ranges the surplus bytes are kept, at most a row group each."""


class FetchedRange:
    """A range of an object whose bytes came in two parts: `head` was fetched before, `tail` now."""

    def __init__(self, start: int, head: bytes, tail: bytes | memoryview) -> None:
        self._start = start
        self._head = head
        self._tail = memoryview(tail)

    def between(self, start: int, end: int) -> bytes | memoryview:
        """Bytes from start to end in the object, copied only if they are in both parts."""
        start, end = start - self._start, end - self._start
        size = len(self._head)
        if start >= size:
            return self._tail[start - size : end - size]
        return self._head[start:end] + self._tail[: max(0, end - size)]


class RangeFetcher:
    """Fetches ranges of the objects of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._surplus: dict[tuple[str, int], bytes] = {}  # by the key and the offset at which it begins

    async def get(self, key: str, start: int, end: int, size: int) -> FetchedRange:
        """The bytes from start to end of an object of this size."""
        head = self._surplus.pop((key, start), b"")
        begin, boundary = start + len(head), _part_boundary_from(end)
        last = boundary if boundary - end <= ROW_GROUP_BYTES and boundary < size else end
        tail = memoryview(await self._store.get_range(key, begin, last))
        if last > end:
            self._surplus[key, end] = bytes(tail[end - begin :])
            while len(self._surplus) > SURPLUS_MAX:
                del self._surplus[next(iter(self._surplus))]
        return FetchedRange(start, head, tail)


def up_to_part_boundary(row_groups: Sequence[RowGroup]) -> Sequence[RowGroup]:
    """Those of consecutive row groups that end before the last part boundary; all if there is none."""
    boundary = row_groups[-1].end // PART_BYTES * PART_BYTES
    before = [row_group for row_group in row_groups if row_group.end <= boundary]
    return before or row_groups


def _part_boundary_from(offset: int) -> int:
    return -(-offset // PART_BYTES) * PART_BYTES
