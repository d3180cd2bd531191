"""The table of segments: which object of the store has which positions of the log."""

from bisect import bisect_left
from collections.abc import Iterator

from ..commands import StoredSegment


class SegmentTable:
    """Live segments by their positions, which never overlap. There may be gaps: positions without rows."""

    def __init__(self) -> None:
        self._lasts: list[int] = []
        self._segments: list[StoredSegment] = []
        self._by_key: dict[str, StoredSegment] = {}
        self.size = 0
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[StoredSegment]:
        return iter(self._segments)

    def get(self, key: str) -> StoredSegment | None:
        """The live segment with this key."""
        return self._by_key.get(key)

    def add(self, segment: StoredSegment) -> None:
        """Add a segment."""
        index = bisect_left(self._lasts, segment.last)
        self._lasts.insert(index, segment.last)
        self._segments.insert(index, segment)
        self._by_key[segment.key] = segment
        self.size += segment.size
        self.payload_bytes += segment.payload_bytes

    def remove(self, key: str) -> None:
        """Remove a segment."""
        segment = self._by_key.pop(key)
        index = bisect_left(self._lasts, segment.last)
        while (
            self._segments[index] is not segment
        ):  # while rows are being loaded, the result of its merge may be there too
            index += 1
        del self._lasts[index], self._segments[index]
        self.size -= segment.size
        self.payload_bytes -= segment.payload_bytes

    def at(self, position: int) -> StoredSegment | None:
        """The segment that has a position."""
        segment = self.after(position - 1)
        return segment if segment is not None and segment.first < position else None

    def after(self, position: int) -> StoredSegment | None:
        """The first segment that may have positions after this one."""
        index = bisect_left(self._lasts, position + 1)
        return self._segments[index] if index < len(self._segments) else None

    def all_after(self, position: int) -> list[StoredSegment]:
        """That segment and all after it."""
        return self._segments[bisect_left(self._lasts, position + 1) :]

    def are_neighbours(self, keys: tuple[str, ...]) -> bool:
        """Whether these are live and adjacent, in this order."""
        segments = [self._by_key.get(key) for key in keys]
        if not segments or segments[0] is None:
            return False
        index = bisect_left(self._lasts, segments[0].last)
        return self._segments[index : index + len(keys)] == segments
