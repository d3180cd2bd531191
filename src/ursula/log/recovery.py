"""Opening a folder of segments, however the last process ended: decides what to keep, truncate or reject.

Only the last segment can be half written. So a bad record counts as a torn tail only there, and only if no
record follows it. Everything that is kept is synced before it can be read: a record that survived only in the
page cache must not be shown and then vanish.
"""

import os
import re
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from ursula.log.disk import Disk
from ursula.log.interface import COUNTER_MASK, GENERATION_SHIFT, LogDamaged
from ursula.log.record import (
    FORMAT_VERSION,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_OVERHEAD_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    UnknownVersion,
    decode_record_header,
    decode_segment_header,
)
from ursula.log.segment import CHUNK_BYTES, LogSegment, SegmentReader, reserve, unborn_path
from ursula.log.segment_scan import RESTORE_HINT

_SEGMENT_NAME = re.compile(r"\d{20}\.log")


class Recovered(NamedTuple):
    """A log as it was found: its segments, the open file of the last one, and its last record."""

    segments: list[LogSegment]
    file: int | None
    position: int
    chain: int


def recover(disk: Disk, directory: str, generation: int, segment_bytes: int, applied: int = 0) -> Recovered:
    """Check a folder, cut off a torn tail, and make the rest durable.

    A log that ends before the position `applied` has lost its end: it is rejected and left as it is.
    """
    disk.make_directory(directory)
    with suppress(FileNotFoundError):
        disk.unlink(unborn_path(directory))
    paths = [os.path.join(directory, name) for name in disk.list(directory) if _SEGMENT_NAME.fullmatch(name)]
    paths.sort()
    if paths:
        _check_generation(paths[-1], generation)
    segments = [_load(disk, path) for path in paths[:-1]]
    if paths and not _remove_torn(disk, paths[-1], alone=not segments):
        segments.append(_load(disk, paths[-1]))
    _check_order(segments)
    if not segments:
        beginning = generation << GENERATION_SHIFT
        _check_end(directory, beginning, applied)
        disk.sync_directory(directory)
        return Recovered([], None, beginning, 0)
    return _recover_last(disk, directory, segments, segment_bytes, applied)


def _recover_last(
    disk: Disk, directory: str, segments: list[LogSegment], segment_bytes: int, applied: int
) -> Recovered:
    last = segments[-1]
    reader = SegmentReader(disk, last.path, last.header)
    while reader.read():
        pass
    _check_end(last.path, reader.position, applied)
    file = disk.open(last.path)
    try:
        if _is_torn(disk, file, reader):
            disk.truncate(file, reader.offset)
        reserve(disk, file, reader.offset, segment_bytes)
        disk.sync(file)
        disk.sync_directory(directory)
    except BaseException:
        disk.close(file)
        raise
    last.length = reader.offset
    return Recovered(segments, file, reader.position, reader.chain)


def _check_generation(path: str, generation: int) -> None:
    found = _first_by_name(path) >> GENERATION_SHIFT
    if found > generation:
        problem = f"the log is already in generation {found}, but generation {generation} was expected"
        hint = "This folder is newer than the state next to it: use a log and a state that belong together."
        raise LogDamaged(path, f"position {_first_by_name(path)}", problem, hint)


def _check_end(path: str, position: int, applied: int) -> None:
    if position < applied:
        problem = f"the log ends at position {position}, but this node had applied {applied}"
        where = "either its end is damaged, or the log is older than the node"
        hint = (
            "Put the right log back from a copy, or make a new node from the store with `ursula restore`, "
            "which loses what came after the last flush."
        )
        raise LogDamaged(path, where, problem, hint)


def _check_order(segments: list[LogSegment]) -> None:
    for segment in segments:
        if segment.header.first != _first_by_name(segment.path):
            problem = f"its first position is {segment.header.first} by its header, but not by its name"
            raise LogDamaged(segment.path, "the segment header", problem, "Restore its original name.")
    for older, newer in pairwise(segments):
        if newer.header.previous < older.header.previous or newer.header.generation < older.header.generation:
            problem = f"the header is older than that of {older.path}"
            raise LogDamaged(newer.path, "the segment header", problem, RESTORE_HINT)


def _load(disk: Disk, path: str) -> LogSegment:
    header, size = _read_header(disk, path)
    if header is None:
        raise LogDamaged(path, "the segment header", "the segment header is damaged", RESTORE_HINT)
    return LogSegment(path, header, size)


def _read_header(disk: Disk, path: str) -> tuple[SegmentHeader | None, int]:
    file = disk.open(path)
    try:
        return decode_segment_header(disk.read(file, SEGMENT_HEADER_BYTES, 0)), disk.size(file)
    except UnknownVersion as error:
        problem = f"written in log format {error.version}, this ursula reads up to {FORMAT_VERSION}"
        raise LogDamaged(path, "the segment header", problem, "Use a newer ursula.") from None
    finally:
        disk.close(file)


def _remove_torn(disk: Disk, path: str, *, alone: bool) -> bool:
    """Remove the last segment if its header is torn: the process died while it created the segment.

    The folder is synced at the end of `recover`, before anything is served.
    """
    header, _ = _read_header(disk, path)
    if header is not None:
        return False
    first = _first_by_name(path)
    file = disk.open(path)
    try:
        found = _find_record(disk, file, 0, first - 1)
    finally:
        disk.close(file)
    if found is not None:
        problem = f"the segment header is damaged, but a record follows at byte {found}"
        raise LogDamaged(path, "the segment header", problem, RESTORE_HINT)
    if alone and first & COUNTER_MASK != 1:
        problem = "the segment header is damaged and the segment before it is missing"
        raise LogDamaged(path, "the segment header", problem, RESTORE_HINT)
    disk.unlink(path)
    return True


def _is_torn(disk: Disk, file: int, reader: SegmentReader) -> bool:
    """Whether anything follows the valid records; LogDamaged if it is more than one torn record."""
    header = decode_record_header(disk.read(file, RECORD_HEADER_BYTES, reader.offset), 0)
    # A payload may look like a record, so the search begins after it if its length is known.
    known = header is not None and header.position == reader.expected
    skipped = RECORD_OVERHEAD_BYTES + header.payload_bytes if header and known else 0
    found = _find_record(disk, file, reader.offset + skipped, reader.expected - 1)
    if found is not None:
        problem = f"a damaged record is followed by another at byte {found}"
        where = f"position {reader.expected}, byte {reader.offset}"
        raise LogDamaged(reader.path, where, problem, RESTORE_HINT)
    starts = range(reader.offset, disk.size(file), CHUNK_BYTES)
    return any(_has_content(disk.read(file, CHUNK_BYTES, start)) for start in starts)


def _find_record(disk: Disk, file: int, start: int, last: int) -> int | None:
    """The offset of a record header, at or after `start`, whose position could follow the last valid one."""
    size = disk.size(file)
    highest = last + 1 + size // RECORD_OVERHEAD_BYTES
    for offset in range(start, size, CHUNK_BYTES):
        data = disk.read(file, CHUNK_BYTES + RECORD_HEADER_BYTES - 1, offset)
        at = data.find(RECORD_MAGIC)
        while at != -1:
            header = decode_record_header(data, at)
            if header and last < header.position <= highest:
                return offset + at
            at = data.find(RECORD_MAGIC, at + 1)
    return None


def _has_content(data: bytes) -> bool:
    return data != bytes(len(data))


def _first_by_name(path: str) -> int:
    return int(os.path.basename(path).removesuffix(".log"))
