"""A segment: an ordinary Parquet file whose footer finds and vouches for its row groups."""

import gc
import hashlib
import random
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cold.sample_rows import Row, mixed_rows, one_stream, page_view, payloads, row, table_of

from ursula.cold.segment.footer import Footer, RowGroup, decode_row_group
from ursula.cold.segment.schema import SEGMENT_SCHEMA
from ursula.cold.segment.writer import EncodedSegment, SegmentWriter, encode_segment

Name = tuple[str, str, str]


def footer_of(segment: EncodedSegment) -> Footer:
    tail = segment.data.slice(segment.data.size - segment.summary.footer_bytes).to_pybytes()
    return Footer.parse("a/key", tail, segment.summary.footer_crc)


def bytes_of(segment: EncodedSegment, row_group: RowGroup) -> bytes:
    return bytes(segment.data.slice(row_group.start, row_group.end - row_group.start))


def name_of(fields: Row) -> Name:
    return fields["bucket"], fields["stream"], fields["incarnation"]


def key_of(fields: Row) -> tuple[str, str, str, int]:
    return *name_of(fields), fields["offset"]


def order(fields: Row) -> tuple[str, str, str, int, int, int]:
    return *key_of(fields), fields["position"], fields["index"]


def test_any_reader_of_parquet_sees_all_rows_sorted_and_ties_as_they_came() -> None:
    rows = mixed_rows(1)
    segment = encode_segment(table_of(rows), 3, 10, 20)
    file = pq.ParquetFile(pa.BufferReader(segment.data), page_checksum_verification=True)
    assert file.read().to_pylist() == sorted(rows, key=order)
    assert file.schema_arrow.remove_metadata().equals(SEGMENT_SCHEMA, check_metadata=True)
    assert [file.schema_arrow.field(i).metadata for i in range(17)] == [
        {b"PARQUET:field_id": str(i + 1).encode()} for i in range(17)
    ]


def test_rows_of_one_command_keep_their_order() -> None:
    rows = [
        row("s", "create", 0, 5),
        row("s", "append", 0, 5, b"a"),
        row("s", "append", 1, 5, b"b"),
        row("s", "close", 2, 5),
        row("r", "create", 0, 6),
        row("r", "close", 0, 6),
        row("r", "attributes", 0, 6),
    ]
    segment = encode_segment(table_of(rows), 0, 0, 9)
    assert pq.read_table(pa.BufferReader(segment.data)).to_pylist() == rows[4:] + rows[:4]


def test_a_segment_says_what_a_reader_needs_to_know_of_it() -> None:
    segment = encode_segment(one_stream([b"abc", b"de"]), 3, 10, 20)
    data = segment.data.to_pybytes()
    summary = segment.summary
    assert (summary.size, summary.row_count, summary.payload_bytes) == (len(data), 2, 5)
    assert summary.digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert summary.footer_crc == zlib.crc32(data[-summary.footer_bytes :])
    facts = pq.read_metadata(pa.BufferReader(data)).metadata
    assert [facts[b"ursula." + name] for name in (b"format", b"group", b"first", b"last")] == [
        b"1",
        b"3",
        b"10",
        b"20",
    ]
    assert footer_of(segment).positions == (10, 20)


def test_a_segment_may_have_no_rows() -> None:
    segment = encode_segment(SEGMENT_SCHEMA.empty_table(), 0, 0, 1)
    footer = footer_of(segment)
    assert footer.row_groups == []
    assert footer.find("b", "s", "1-1-0", 0) is None
    assert footer.find_record("b", "s", "1-1-0", 0) is None
    assert footer.of_bucket("b") == []
    assert pq.read_table(pa.BufferReader(segment.data)).num_rows == 0


def test_columns_that_are_null_are_sorted_and_found_as_if_empty() -> None:
    nothing = {"stream": None, "incarnation": None, "offset": None}
    rows = [row("s", "append", 0, 1, b"x"), row("", "made", 0, 1) | nothing]
    segment = encode_segment(table_of(rows), 0, 0, 1, row_group_rows=1)
    assert pq.read_table(pa.BufferReader(segment.data)).to_pylist() == rows[::-1]
    first, second = footer_of(segment).of_bucket("b")
    assert first.first == ("b", "", "", -1)
    assert footer_of(segment).find("b", "s", "1-1-0", 0) == second


@pytest.mark.parametrize("seed", range(4))
def test_every_byte_and_record_and_row_is_in_the_row_group_that_the_footer_names(seed: int) -> None:
    rows = mixed_rows(seed)
    segment = encode_segment(table_of(rows), 0, 0, 9, row_group_bytes=5000, row_group_rows=23)
    footer = footer_of(segment)
    held = [
        decode_row_group(footer, row_group, bytes_of(segment, row_group)).to_pylist()
        for row_group in footer.row_groups
    ]
    assert [fields for group in held for fields in group] == sorted(rows, key=order)
    assert all(len(group) <= 23 for group in held)
    assert all(sum(len(r["payload"] or b"") for r in group) <= 5000 for group in held)
    numbers: dict[Name, set[int]] = defaultdict(set)
    for row_group, group in zip(footer.row_groups, held, strict=True):
        assert (row_group.first, row_group.last) == (key_of(group[0]), key_of(group[-1]))
        assert row_group.row_count == len(group)
        for fields in group:
            numbers[name_of(fields)].add(row_group.number)
            if fields["kind"] == "append":
                for offset in (fields["offset"], fields["next_offset"] - 1):
                    assert footer.find(*name_of(fields), offset) == row_group
                assert footer.find_record(*name_of(fields), fields["record"]) == row_group
    for name, expected in numbers.items():
        row_group = footer.row_groups[min(expected)]
        seen = {row_group.number}
        while following := footer.following(row_group, *name):
            row_group = following
            seen.add(row_group.number)
        assert seen == expected
    for bucket in ("b0", "b1", "b2"):
        found = {row_group.number for row_group in footer.of_bucket(bucket)}
        assert found == set().union(*(seen for name, seen in numbers.items() if name[0] == bucket))


def test_a_stream_that_is_not_there_is_not_found() -> None:
    footer = footer_of(encode_segment(table_of(mixed_rows(1)), 0, 0, 9, row_group_rows=50))
    assert footer.find("a", "s", "1-1-0", 0) is None
    assert footer.find("z", "s", "1-1-0", 0) is None
    assert footer.find_record("z", "s", "1-1-0", 0) is None
    assert footer.of_bucket("b") == []
    assert footer.following(footer.row_groups[-1], "b2", "s", "1-1-0") is None


def test_a_large_message_has_a_row_group_of_its_own() -> None:
    messages = [b"a" * 1000] * 3 + [b"b" * (3 << 20)] + [b"c" * 1000] * 3
    footer = footer_of(encode_segment(one_stream(messages), 0, 0, 9))
    assert [row_group.row_count for row_group in footer.row_groups] == [3, 1, 3]


def test_a_row_group_ends_after_65536_rows() -> None:
    footer = footer_of(encode_segment(one_stream([b"x"] * 70_000), 0, 0, 9))
    assert [row_group.row_count for row_group in footer.row_groups] == [65_536, 70_000 - 65_536]


def test_only_the_columns_asked_for_are_decoded() -> None:
    segment = encode_segment(one_stream([b"abc"]), 0, 0, 9)
    footer = footer_of(segment)
    table = decode_row_group(
        footer, footer.row_groups[0], bytes_of(segment, footer.row_groups[0]), ["offset", "payload"]
    )
    assert table.to_pydict() == {"offset": [0], "payload": [b"abc"]}


def test_json_events_shrink_to_a_fifth() -> None:
    segment = encode_segment(one_stream(payloads(30_000, page_view)), 0, 0, 9)
    assert segment.summary.payload_bytes > 5 * segment.data.size


def test_columns_without_a_value_are_stored_as_every_reader_understands_them() -> None:
    segment = encode_segment(one_stream([b"abc"]), 0, 0, 9)
    row_group = footer_of(segment).metadata.row_group(0)
    chunks = [row_group.column(number) for number in range(row_group.num_columns)]
    empty = [chunk for chunk in chunks if chunk.statistics and chunk.statistics.null_count == 1]
    assert {chunk.path_in_schema for chunk in empty} >= {
        "producer_id",
        "producer_epoch",
        "producer_seq",
        "event",
    }
    assert not any("DELTA" in encoding for chunk in empty for encoding in chunk.encodings)
    assert [chunk.path_in_schema for chunk in chunks if chunk.statistics is None] == ["payload"]


def test_any_flipped_bit_of_a_row_group_is_noticed() -> None:
    segment = encode_segment(table_of(mixed_rows(2, 60)), 0, 0, 9, row_group_rows=30)
    footer = footer_of(segment)
    row_group = footer.row_groups[1]
    data = bytes_of(segment, row_group)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << random.randrange(8)
        with pytest.raises(ValueError, match="a/key: row group 1: the checksum"):
            decode_row_group(footer, row_group, bytes(damaged))


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_row_group_of_another_size_is_rejected(change: Callable[[bytes], bytes]) -> None:
    segment = encode_segment(one_stream([b"abc"]), 0, 0, 9)
    footer = footer_of(segment)
    with pytest.raises(ValueError, match=r"a/key: row group 0: .* bytes instead of"):
        decode_row_group(footer, footer.row_groups[0], change(bytes_of(segment, footer.row_groups[0])))


def test_a_damaged_footer_is_rejected() -> None:
    segment = encode_segment(one_stream([b"abc"]), 0, 0, 9)
    tail = segment.data.to_pybytes()[-segment.summary.footer_bytes :]
    for place in range(len(tail)):
        damaged = bytearray(tail)
        damaged[place] ^= 1 << random.randrange(8)
        with pytest.raises(ValueError, match="a/key"):
            Footer.parse("a/key", bytes(damaged), segment.summary.footer_crc)
    for short in (b"", tail[:3], tail[-8:], tail[1:], tail[:-1]):
        with pytest.raises(ValueError, match="a/key"):
            Footer.parse("a/key", short, segment.summary.footer_crc)


def test_a_footer_is_found_at_the_end_of_more_bytes() -> None:
    segment = encode_segment(one_stream([b"abc"]), 0, 0, 9)
    assert len(Footer.parse("a/key", segment.data.to_pybytes(), None).row_groups) == 1


def test_a_file_of_another_format_is_rejected() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(one_stream([b"abc"]), sink)
    with pytest.raises(ValueError, match="a/key: the format is None, not 1"):
        Footer.parse("a/key", sink.getvalue().to_pybytes(), None)


@pytest.mark.parametrize("seed", range(3))
def test_a_segment_is_the_same_however_many_rows_are_written_at_a_time(tmp_path: Path, seed: int) -> None:
    rows = sorted(mixed_rows(seed), key=order)
    pauses: list[None] = []
    whole = encode_segment(
        table_of(rows), 3, 10, 20, row_group_bytes=5000, row_group_rows=23, pause=lambda: pauses.append(None)
    )
    assert len(pauses) > 10  # other threads get their turn between two row groups
    draw = random.Random(seed)
    writer = SegmentWriter(tmp_path / "segment", 3, 10, 20, row_group_bytes=5000, row_group_rows=23)
    begin = 0
    while begin < len(rows):
        end = begin + draw.choice((0, 1, 5, 300))
        writer.write(table_of(rows[begin:end]))
        begin = end
    assert writer.finish() == whole.summary
    assert writer.path.read_bytes() == whole.data.to_pybytes()


def test_rows_that_sort_before_earlier_ones_are_rejected(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "segment", 0, 0, 9)
    writer.write(one_stream([b"abc"], "z"))
    with pytest.raises(ValueError, match="come after"):
        writer.write(one_stream([b"abc"], "a"))
    writer.discard()


def test_a_discarded_segment_leaves_nothing_behind(tmp_path: Path) -> None:
    for is_whole in (False, True):
        writer = SegmentWriter(tmp_path / "segment", 0, 0, 9)
        writer.write(one_stream([b"abc"]))
        if is_whole:
            writer.finish()
        writer.discard()
        del writer
        assert list(tmp_path.iterdir()) == []


def test_memory_of_a_written_segment_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    """The garbage collector of a server looks at young objects only."""
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        for number in range(3):
            writer = SegmentWriter(tmp_path / f"{number}", 0, 0, 9)
            writer.write(one_stream([b"abc" * 1000] * 100))
            writer.finish()
            del writer
            encode_segment(one_stream([b"abc"]), 0, 0, 9)
        assert pa.total_allocated_bytes() <= before + 1000
    finally:
        gc.enable()


def codec_of_payload(segment: EncodedSegment) -> str:
    group = pq.read_metadata(pa.BufferReader(segment.data)).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return str(next(column.compression for column in columns if column.path_in_schema == "payload"))


def test_only_what_gets_smaller_is_compressed() -> None:
    draw = random.Random(1)
    noise = [draw.randbytes(1000) for _ in range(300)]
    text = [b'{"user": "somebody", "number": %d}' % draw.randrange(10**9) * 20 for _ in range(300)]
    cases = [(noise, "UNCOMPRESSED"), (text, "ZSTD"), (noise + text[:100], "ZSTD"), (text + noise, "ZSTD")]
    for messages, codec in cases:
        segment = encode_segment(one_stream(messages), 0, 0, len(messages))
        assert codec_of_payload(segment) == codec
        footer = footer_of(segment)
        tables = [
            decode_row_group(footer, row_group, bytes_of(segment, row_group))
            for row_group in footer.row_groups
        ]
        assert pa.concat_tables(tables)["payload"].to_pylist() == messages
