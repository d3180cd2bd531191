"""Stream slices are read as messages in memory are, and a bucket's rows come back in the order of the log."""

import random
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cold.sample_rows import Row, mixed_rows, one_stream, row, table_of

from ursula.cold.segment.footer import Footer, decode_row_group
from ursula.cold.segment.stream_slice import RowGroupStreams, StreamSlice, rows_in_order
from ursula.cold.segment.writer import encode_segment
from ursula.model.stream.messages import Messages

START = 1000
appends = st.lists(
    st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4), min_size=1, max_size=8
)


def whole_table(rows: list[Row]) -> pa.Table:
    data = encode_segment(table_of(rows), 0, 0, 9).data.to_pybytes()
    footer = Footer.parse("key", data, None)
    return pa.concat_tables(
        decode_row_group(footer, row_group, data[row_group.start : row_group.end])
        for row_group in footer.row_groups
    )


def both(appended: list[list[bytes]], events: bool) -> tuple[Messages, StreamSlice]:
    """The same appends in memory and in a segment, there between other streams."""
    messages = Messages(START)
    rows = [row("r", "append", 7, 1, b"before"), row("t", "append", 9, 1, b"after")]
    record = 0
    for position, payloads in enumerate(appended, start=5):
        offset = messages.end
        for payload in payloads:
            rows.append(row("s", "append", offset, position // 2, payload, index=position % 2, record=record))
            record += 1
            if events:
                rows.append(row("s", "snapshot", offset, position + 100))
            offset += len(payload)
        messages.add(tuple(payloads))
    found = RowGroupStreams(whole_table(rows)).find("b", "s", "1-1-0")
    assert found is not None
    return messages, found


@settings(max_examples=60)
@given(appends, st.booleans(), st.data())
def test_a_slice_answers_as_messages_in_memory_do(
    appended: list[list[bytes]], events: bool, data: st.DataObject
) -> None:
    messages, found = both(appended, events)
    assert (found.start, found.end, list(found.ends)) == (START, messages.end, list(messages.ends))
    assert list(found.append_ends) == list(messages.append_ends or messages.ends)
    taken: list[bytes] = []
    found.read(START, messages.end, messages.end, whole=False, into=taken, split=False)
    assert taken == [b"".join(payload for payloads in appended for payload in payloads)]
    for offset in range(START, messages.end + 2):
        assert found.is_boundary(offset) == messages.is_boundary(offset)
        assert found.count_before(offset) == messages.count_before(offset)
        assert found.append_end_after(offset) == messages.append_end_after(offset)
        limit = data.draw(st.integers(START, messages.end + 2))
        assert list(found.message_ends(offset, limit)) == list(messages.message_ends(offset, limit))
        bytes_max, whole = data.draw(st.integers(1, 40)), data.draw(st.booleans())
        before = data.draw(st.sampled_from(([], [b"x"])))
        expected: list[Any] = list(before)
        split, joined = list(before), list(before)
        end = messages.read(offset, limit, bytes_max, whole, expected)
        assert found.read(offset, limit, bytes_max, whole, split, True) == end
        assert found.read(offset, limit, bytes_max, whole, joined, False) == end
        assert split == expected
        assert b"".join(joined) == b"".join(expected)
        assert len(joined) - len(before) == (end > offset)


def test_a_slice_knows_its_first_record_and_the_commands_at_its_ends() -> None:
    rows = [
        row("s", "append", 3, 5, b"ab", record=40, index=2),
        row("s", "append", 5, 6, b"c", record=41),
        row("s", "append", 6, 6, b"d", record=42),
        row("s", "append", 7, 6, b"e", record=43, index=1),
    ]
    found = RowGroupStreams(whole_table(rows)).find("b", "s", "1-1-0")
    assert found is not None
    assert found.first_record == 40
    assert (found.first_command, found.last_command) == ((5, 2), (6, 1))
    assert list(found.append_ends) == [5, 7, 8]


def test_binary_messages_have_no_record() -> None:
    found = RowGroupStreams(whole_table([row("s", "append", 0, 1, b"x")])).find("b", "s", "1-1-0")
    assert found is not None
    assert found.first_record is None


def test_every_message_that_is_not_json_is_an_append_also_in_a_batch() -> None:
    rows = [row("s", "append", 0, 1, b"ab"), row("s", "append", 2, 1, b"c")]
    found = RowGroupStreams(whole_table(rows)).find("b", "s", "1-1-0")
    assert found is not None
    assert list(found.append_ends) == [2, 3]


def test_a_stream_without_messages_has_no_slice() -> None:
    table = whole_table([row("s", "create", 0, 1), row("t", "append", 0, 1, b"x")])
    assert RowGroupStreams(table).find("b", "s", "1-1-0") is None
    assert RowGroupStreams(table).find("b", "t", "1-2-0") is None
    assert RowGroupStreams(table).find("a", "t", "1-1-0") is None
    assert RowGroupStreams(table.slice(0, 0)).find("b", "t", "1-1-0") is None


def test_missing_messages_are_noticed() -> None:
    table = whole_table([row("s", "append", 0, 1, b"ab"), row("s", "append", 3, 2, b"c")])
    with pytest.raises(ValueError, match="messages of s are missing between 0 and 4"):
        RowGroupStreams(table).find("b", "s", "1-1-0")


def test_a_slice_that_is_read_as_a_whole_is_not_copied() -> None:
    found = RowGroupStreams(one_stream([b"a" * 1000] * 1000)).find("b", "s", "1-1-0")
    assert found is not None
    chunks: list[bytes] = []
    assert found.read(0, 1_000_000, 1 << 20, whole=False, into=chunks, split=False) == 1_000_000
    assert chunks[0] is found.data


@given(st.lists(st.none() | st.binary(min_size=1, max_size=5), min_size=1), st.integers(0, 3))
def test_a_stream_without_ordinals_needs_only_its_bytes(rows: list[bytes | None], cut: int) -> None:
    rows = [*rows, b"last"]
    offset, full_rows = 7, []
    for payload in rows:
        size = len(payload or b"")
        full_rows.append(row("s", "append" if payload else "attributes", offset, 1, payload))
        offset += size
    full = RowGroupStreams(whole_table(full_rows)).find("b", "s", "1-1-0")
    plain = StreamSlice.of_plain(pa.array([*[b"before"] * cut, *rows], pa.binary()).slice(cut), 7, offset - 4)
    assert full is not None
    assert (plain.start, plain.ends, plain.data) == (full.start, full.ends, full.data)
    assert (plain.append_ends, plain.first_record) == (full.append_ends, None)
    with pytest.raises(ValueError, match="messages are missing between 7 and"):
        StreamSlice.of_plain(pa.array(rows, pa.binary()), 7, offset - 3)


@pytest.mark.parametrize("seed", range(3))
def test_every_stream_is_read_back_whole_across_row_groups(seed: int) -> None:
    rows = mixed_rows(seed)
    segment = encode_segment(table_of(rows), 0, 0, 9, row_group_bytes=9000, row_group_rows=50)
    data = segment.data.to_pybytes()
    footer = Footer.parse("key", data, None)
    streams: dict[tuple[str, str, str], list[Row]] = {}
    for fields in rows:
        if fields["kind"] == "append":
            name = (fields["bucket"], fields["stream"], fields["incarnation"])
            streams.setdefault(name, []).append(fields)
    for name, appended in streams.items():
        offset, chunks = appended[0]["offset"], list[bytes]()
        row_group = footer.find(*name, offset)
        while row_group is not None:
            found = RowGroupStreams(
                decode_row_group(footer, row_group, data[row_group.start : row_group.end])
            ).find(*name)
            if found is not None:
                assert found.start == offset
                offset = found.read(offset, 1 << 60, 1 << 60, True, chunks, True)
            row_group = footer.following(row_group, *name)
        assert chunks == [fields["payload"] for fields in appended]


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_bucket_come_back_in_the_order_of_the_log(seed: int) -> None:
    rows = mixed_rows(seed)
    middle = rows[len(rows) // 2]["position"]
    table = whole_table(rows)
    for after, until in ((-1, middle), (middle, 1 << 60), (5, 5)):
        expected = [r for r in rows if r["bucket"] == "b1" and after < r["position"] <= until]
        assert rows_in_order(table, "b1", after, until).to_pylist() == expected


def test_rows_of_one_command_come_back_in_the_order_of_its_kinds() -> None:
    kinds = [("create", 5), ("append", 5), ("append", 6), ("close", 7)]
    rows = [row("t", kind, offset, 1, b"x" if kind == "append" else None) for kind, offset in kinds]
    rows += [row("s", "fork", 5, 1, index=1), row("s", "close", 5, 1, index=1)]
    rows += [row("t", "snapshot", 6, 2), row("t", "trim", 6, 2), row("s", "snapshot", 5, 2, index=1)]
    rows += [row("s", "trim", 2, 2, index=1)]
    table = whole_table(rows)
    assert rows_in_order(table, "b", 0, 2).to_pylist() == rows
    shuffled = table.take(random.Random(1).sample(range(len(rows)), len(rows)))
    assert rows_in_order(shuffled, "b", 0, 2)["kind"].to_pylist() == [r["kind"] for r in rows]


def test_the_format_needs_nothing_but_pyarrow() -> None:
    code = """
import sys
import ursula.cold.segment.stream_slice, ursula.cold.segment.writer, ursula.cold.segment.footer
ours = {name for name in sys.modules if name.startswith("ursula")}
format = {"ursula.cold.segment" + end for end in ("", ".footer", ".schema", ".stream_slice", ".writer")}
assert ours == {"ursula", "ursula.crc", "ursula.ranges", "ursula.cold", *format}, ours
assert not {"obstore", "httpx", "msgspec", "httptools"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
