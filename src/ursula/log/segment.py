"""One segment file: its name, how it is created, and how its records are read and checked."""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass

from ursula.log.disk import Disk
from ursula.log.interface import Entry
from ursula.log.record import (
    RECORD_OVERHEAD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_record,
    decode_record_header,
    encode_segment_header,
)

CHUNK_BYTES = 1024 * 1024
"""How much of a segment is read at a time."""


@dataclass(slots=True)
class LogSegment:
    """A segment of an open log; `length` is the size of its header and records, as far as it is known."""

    path: str
    header: SegmentHeader
    length: int


def segment_path(directory: str, first: int) -> str:
    """The path of the segment whose first record has this position."""
    return os.path.join(directory, f"{first:020}.log")


def unborn_path(directory: str) -> str:
    """The path under which a segment is created before it gets its name."""
    return os.path.join(directory, "unborn")


def create_segment(disk: Disk, directory: str, header: SegmentHeader, room_bytes: int) -> int:
    """Create an empty segment, make its name and header durable, and return it open."""
    path, unborn = segment_path(directory, header.first), unborn_path(directory)
    with suppress(FileNotFoundError):
        disk.unlink(unborn)
    file = disk.create(unborn)
    try:
        disk.write(file, encode_segment_header(header), 0)
        reserve(disk, file, SEGMENT_HEADER_BYTES, room_bytes)
        disk.sync(file)
        # A segment whose first record failed is replaced, never removed: if the older ones were trimmed, its
        # header is the only trace of the position.
        disk.rename(unborn, path)
        disk.sync_directory(directory)
    except OSError:
        disk.close(file)
        with suppress(OSError):
            disk.unlink(unborn)
        raise
    return file


def reserve(disk: Disk, file: int, length: int, room_bytes: int) -> None:
    """Preallocate a segment if the file system can; otherwise the log still works, but is slower."""
    if room_bytes <= disk.size(file):
        return
    try:
        disk.preallocate(file, room_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSPC, errno.EINVAL):
            raise
        disk.truncate(file, length)


class SegmentReader:
    """Reads the records of a segment in order, each checked against the one before it."""

    def __init__(self, disk: Disk, path: str, header: SegmentHeader) -> None:
        self._disk = disk
        self.path = path
        self.offset = SEGMENT_HEADER_BYTES
        self.position = header.previous
        self.expected = header.first
        self.chain = header.chain

    def read(self, upto: int | None = None) -> list[Entry]:
        """The next entries, about CHUNK_BYTES; none after `upto` or after the last valid record."""
        if upto is not None and self.position >= upto:
            return []
        # Opened for each chunk, so that a follower that is dropped halfway leaves nothing open.
        file = self._disk.open(self.path)
        try:
            data = self._disk.read(file, CHUNK_BYTES, self.offset)
            header = decode_record_header(data, 0)
            if header and header.payload_bytes + RECORD_OVERHEAD_BYTES > len(data):
                data = self._disk.read(file, header.payload_bytes + RECORD_OVERHEAD_BYTES, self.offset)
        finally:
            self._disk.close(file)
        return self._parse(data, upto)

    def _parse(self, data: bytes, upto: int | None) -> list[Entry]:
        entries: list[Entry] = []
        at = 0
        while upto is None or self.position < upto:
            decoded = decode_record(data, at, self.chain)
            if decoded is None or decoded[0].position != self.expected:
                break
            entry, self.chain = decoded
            entries.append(entry)
            self.position, self.expected = entry.position, entry.position + 1
            at += RECORD_OVERHEAD_BYTES + len(entry.payload)
        self.offset += at
        return entries
