"""The bytes on disk: what is written is read back, and nothing else is taken for it."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ursula.log.interface import Entry
from ursula.log.record import (
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    RecordHeader,
    SegmentHeader,
    UnknownVersion,
    decode_record,
    decode_record_header,
    decode_segment_header,
    encode_record,
    encode_segment_header,
)

positions = st.integers(0, 2**64 - 1)
crcs = st.integers(0, 2**32 - 1)


@given(positions, st.binary(), crcs, st.binary())
def test_a_record_reads_back(position: int, payload: bytes, chain: int, before: bytes) -> None:
    data, after = encode_record(position, payload, chain)
    assert decode_record(before + data, len(before), chain) == (Entry(position, payload), after)
    assert decode_record_header(data, 0) == RecordHeader(position, len(payload))


@given(st.binary(max_size=40), crcs, st.data())
def test_a_flipped_bit_is_noticed(payload: bytes, chain: int, data: st.DataObject) -> None:
    record = bytearray(encode_record(7, payload, chain)[0])
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    assert decode_record(bytes(record), 0, chain) is None


def test_a_cut_record_is_not_a_record() -> None:
    record, _ = encode_record(7, b"payload", 0)
    assert all(decode_record(record[:length], 0, 0) is None for length in range(len(record)))


def test_a_record_of_another_history_does_not_fit() -> None:
    record, _ = encode_record(7, b"payload", 1)
    assert decode_record(record, 0, 2) is None


@given(st.integers(0, 2**24 - 1), positions, crcs)
def test_a_segment_header_reads_back(generation: int, previous: int, chain: int) -> None:
    header = SegmentHeader(generation, previous, chain)
    data = encode_segment_header(header)
    assert len(data) == SEGMENT_HEADER_BYTES
    assert decode_segment_header(data) == header


def test_a_cut_segment_header_is_torn() -> None:
    data = encode_segment_header(SegmentHeader(1, 1 << 40, 5))
    for length in range(len(data)):
        assert decode_segment_header(data[:length]) is None
        assert decode_segment_header(data[:length].ljust(SEGMENT_HEADER_BYTES, b"\0")) is None


def test_a_newer_version_is_named() -> None:
    data = bytearray(encode_segment_header(SegmentHeader(1, 1 << 40, 5)))
    data[8] = FORMAT_VERSION + 1
    data[-4:] = crc32(data[:-4]).to_bytes(4, "little")
    with pytest.raises(UnknownVersion, match=f"{FORMAT_VERSION + 1}.*{FORMAT_VERSION}"):
        decode_segment_header(bytes(data))


def test_the_first_version_keeps_its_bytes() -> None:
    header = encode_segment_header(SegmentHeader(1, 1 << 40, 0))
    record, _ = encode_record((1 << 40) + 1, b"hello", 0)
    assert header.hex() == "555253554c4f470a01000000010000000000000000010000000000001047ea1c"
    assert record.hex() == "f55245430100000000010000050000001d4e37fc68656c6c6f86a61036"
