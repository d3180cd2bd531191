"""Writing records, with one write and one sync each, and recovering when one of them fails (say, disk full).

A failed sync may have dropped pages that the kernel still shows, so that file is never synced again: it is
truncated to its last synced length, and the log continues in a new segment, whose header says where the old
one ends. Blocking, and used by one thread at a time.
"""

import time
from collections.abc import Callable
from contextlib import suppress

from ursula.histogram import Histogram
from ursula.log.disk import Disk
from ursula.log.interface import GENERATION_SHIFT, AppendRefused, AppendRetryable, AppendUnknown
from ursula.log.record import (
    PAYLOAD_BYTES_MAX,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_record,
)
from ursula.log.recovery import Recovered
from ursula.log.segment import LogSegment, create_segment, segment_path

ZEROS_AHEAD_BYTES = 256 * 1024
"""How much reserved space is overwritten with zeros at a time: see `Writer._with_zeros`."""

SYNC_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Writer:
    """Writes the end of the log. `announce` is called with each new segment before a record in it is
    acknowledged."""

    def __init__(
        self, disk: Disk, directory: str, generation: int, segment_bytes: int, found: Recovered
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._generation = generation
        self._segment_bytes = segment_bytes
        self._position, self._chain = found.position, found.chain
        self._file = found.file
        self._end = found.segments[-1].length if found.segments else 0
        self._room = 0 if self._file is None else disk.size(self._file)
        self._overwritten = self._end
        # A sealed segment takes no more records: its successor's header may already be on the disk.
        self._sealed = not found.segments or found.segments[-1].header.generation < generation
        self._stopped: str | None = None
        self.sync_seconds = Histogram(SYNC_SECONDS)
        self.announce: Callable[[LogSegment], None] = found.segments.append

    @property
    def end(self) -> int:
        """The length of the last segment up to its last synced record."""
        return self._end

    def append(self, payload: bytes) -> int:
        """Make a payload durable and return its position, or raise an AppendFailed."""
        if self._stopped:
            raise AppendRetryable(f"the log takes no more writes: {self._stopped}")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise AppendRefused(f"an entry of {len(payload)} bytes is larger than {PAYLOAD_BYTES_MAX}")
        position = max(self._position, self._generation << GENERATION_SHIFT) + 1
        record, chain = encode_record(position, payload, self._chain)
        file = self._file_with_room(len(record))
        self._write(file, record)
        self._end += len(record)
        self._position, self._chain = position, chain
        return position

    def begin_segment(self) -> int:
        """Continue in a new segment. A failure leaves the old one sealed, and the next call tries again."""
        self._sealed = True
        header = SegmentHeader(self._generation, self._position, self._chain)
        file = create_segment(self._disk, self._directory, header, self._segment_bytes)
        self._close_old()
        self._file, self._end, self._sealed = file, SEGMENT_HEADER_BYTES, False
        self._room, self._overwritten = self._disk.size(file), self._end
        self.announce(LogSegment(segment_path(self._directory, header.first), header, SEGMENT_HEADER_BYTES))
        return file

    def stop(self, reason: str) -> None:
        """Reject all further records."""
        self._stopped = reason

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None

    def begin_if_sealed(self) -> None:
        """Create the first segment of a new log or of a new generation."""
        if self._sealed:
            self.begin_segment()

    def _file_with_room(self, record_bytes: int) -> int:
        fits = self._end + record_bytes <= self._segment_bytes or self._end == SEGMENT_HEADER_BYTES
        if self._file is not None and fits and not self._sealed:
            return self._file
        try:
            return self.begin_segment()
        except OSError as error:
            raise AppendRetryable(_reason(error)) from error

    def _write(self, file: int, record: bytes) -> None:
        written = False
        try:
            self._disk.write(file, self._with_zeros(record), self._end)
            written = True
            began = time.perf_counter()
            self._disk.sync(file)
            self.sync_seconds.add(time.perf_counter() - began)
        except OSError as error:
            self._abandon(file, error)
            if written and self._sealed:
                # The truncation is not durable, and no new header overrules the record: it may come back
                # after a power loss.
                raise AppendUnknown(_reason(error)) from error
            raise AppendRetryable(_reason(error)) from error

    def _with_zeros(self, record: bytes) -> bytes:
        """The record, followed by zeros if it is the first to reach into reserved space not yet overwritten.

        A file system notes in its journal which reserved blocks have been written, and a sync waits for
        that. Doing it once for many records instead of once for each halves the time of a sync.
        """
        end = self._end + len(record)
        if end > self._overwritten:
            zeros = max(0, min(self._room - end, ZEROS_AHEAD_BYTES))
            self._overwritten = end + zeros
            record += bytes(zeros)
        return record

    def _abandon(self, file: int, cause: OSError) -> None:
        try:
            self._disk.truncate(file, self._end)
        except OSError as error:
            self._stopped = f"after {_reason(cause)!r} its file could not be truncated ({_reason(error)})"
            raise AppendUnknown(_reason(cause)) from error
        with suppress(OSError):
            self.begin_segment()

    def _close_old(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._disk.truncate(self._file, self._end)
            self.close()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
