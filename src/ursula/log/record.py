"""The bytes of the file log. All numbers are little-endian.

A record is a log entry as it is on the disk; it has nothing to do with the records of a JSON stream.
A segment is a header, then records without gaps, then zeros or whatever a crash left there.

Segment header, 32 bytes:
    magic         8   b"URSULOG\\n"
    version       4   FORMAT_VERSION; decides how everything after it is read
    generation    4   the generation of every record in the segment
    previous      8   position of the last record before the segment
    chain         4   CRC of that record's payload
    header crc    4   CRC-32 of the 28 bytes above

Record, 24 bytes and the payload:
    magic         4   b"\\xf5REC"
    position      8
    length        4   of the payload
    header crc    4   CRC-32 of the 16 bytes above
    payload
    payload crc   4   CRC-32 of the payload, begun with the payload CRC of the record before

The chain ties each record to all before it: a record left over from another history does not fit.
"""

import struct
from typing import NamedTuple

from ursula.crc import crc32
from ursula.log.interface import GENERATION_SHIFT, Entry

FORMAT_VERSION = 1

_SEGMENT = struct.Struct("<8sIIQI")
_RECORD = struct.Struct("<4sQI")
_CRC = struct.Struct("<I")
_SEGMENT_MAGIC = b"URSULOG\n"

RECORD_MAGIC = b"\xf5REC"
SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size
RECORD_HEADER_BYTES = _RECORD.size + _CRC.size
RECORD_OVERHEAD_BYTES = RECORD_HEADER_BYTES + _CRC.size
PAYLOAD_BYTES_MAX = 2**32 - 1


class SegmentHeader(NamedTuple):
    """The generation of a segment, and where the segment before it ends."""

    generation: int
    previous: int
    chain: int

    @property
    def first(self) -> int:
        """The position that the segment's first record has or will have."""
        return max(self.previous, self.generation << GENERATION_SHIFT) + 1


class RecordHeader(NamedTuple):
    """The header of a record, without its payload."""

    position: int
    payload_bytes: int


class UnknownVersion(Exception):
    """A segment that was written in another version of the format."""

    def __init__(self, version: int) -> None:
        super().__init__(f"format version {version}, but this program reads {FORMAT_VERSION}")
        self.version = version


def encode_segment_header(header: SegmentHeader) -> bytes:
    """The bytes that a segment begins with."""
    head = _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT_VERSION, header.generation, header.previous, header.chain)
    return head + _CRC.pack(crc32(head))


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """The header at the start of a segment; None if it is torn. May raise UnknownVersion."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, version, generation, previous, chain = _SEGMENT.unpack_from(data)
    if magic == _SEGMENT_MAGIC and version > FORMAT_VERSION:
        raise UnknownVersion(version)
    if magic != _SEGMENT_MAGIC or _CRC.unpack_from(data, _SEGMENT.size)[0] != crc32(data[: _SEGMENT.size]):
        return None
    return SegmentHeader(generation, previous, chain)


def encode_record(position: int, payload: bytes, chain: int) -> tuple[bytes, int]:
    """The bytes of a record and the chain after it."""
    head = _RECORD.pack(RECORD_MAGIC, position, len(payload))
    chain = crc32(payload, chain)
    return b"".join((head, _CRC.pack(crc32(head)), payload, _CRC.pack(chain))), chain


def decode_record_header(data: bytes, at: int) -> RecordHeader | None:
    """The record header at a byte offset, or None if there is no whole and valid one."""
    if len(data) - at < RECORD_HEADER_BYTES:
        return None
    magic, position, payload_bytes = _RECORD.unpack_from(data, at)
    if magic != RECORD_MAGIC:
        return None
    if _CRC.unpack_from(data, at + _RECORD.size)[0] != crc32(data[at : at + _RECORD.size]):
        return None
    return RecordHeader(position, payload_bytes)


def decode_record(data: bytes, at: int, chain: int) -> tuple[Entry, int] | None:
    """The record at a byte offset and the chain after it, or None if there is no whole and valid one."""
    header = decode_record_header(data, at)
    if header is None or len(data) - at < RECORD_OVERHEAD_BYTES + header.payload_bytes:
        return None
    start = at + RECORD_HEADER_BYTES
    end = start + header.payload_bytes
    payload = data[start:end]
    chain = crc32(payload, chain)
    if _CRC.unpack_from(data, end)[0] != chain:
        return None
    return Entry(header.position, payload), chain
