"""Reading stored entries across segments. Blocking: for a worker thread."""

from bisect import bisect_right

from ursula.log.disk import Disk
from ursula.log.interface import Entry, LogDamaged
from ursula.log.segment import LogSegment, SegmentReader

RESTORE_HINT = (
    "Restore the folder from a copy; to continue without the lost entries, restore a backup of the state."
)


class SegmentScan:
    """The entries after one position and up to another, from the segments that exist when it is made."""

    def __init__(self, disk: Disk, segments: list[LogSegment], after: int, upto: int) -> None:
        start = max(0, bisect_right(segments, after, key=lambda segment: segment.header.previous) - 1)
        self._disk = disk
        self._segments = segments[start:] if after < upto else []
        self._after, self._upto = after, upto
        self._index = 0
        self._reader: SegmentReader | None = None

    def read(self) -> list[Entry]:
        """The next entries, none at the end; LogDamaged if a record is missing or wrong."""
        while self._index < len(self._segments):
            reader = self._reader or self._open_reader()
            entries = reader.read(self._end(self._index))
            if not entries:
                self._finish(reader)
            elif entries[0].position <= self._after:
                entries = [entry for entry in entries if entry.position > self._after]
            if entries:
                return entries
        return []

    def _open_reader(self) -> SegmentReader:
        segment = self._segments[self._index]
        self._reader = SegmentReader(self._disk, segment.path, segment.header)
        return self._reader

    def _end(self, index: int) -> int:
        # Records of an older file beyond the position in the next file's header were never acknowledged.
        last = index + 1 == len(self._segments)
        return self._upto if last else self._segments[index + 1].header.previous

    def _finish(self, reader: SegmentReader) -> None:
        where = f"position {reader.expected}, byte {reader.offset}"
        if reader.position < self._end(self._index):
            raise LogDamaged(reader.path, where, "an acknowledged record is missing or damaged", RESTORE_HINT)
        self._index += 1
        self._reader = None
        if self._index < len(self._segments) and self._segments[self._index].header.chain != reader.chain:
            problem = f"its last record is not the one that {self._segments[self._index].path} continues from"
            raise LogDamaged(reader.path, where, problem, RESTORE_HINT)
