"""Which rows and row groups are read: exactly those that are wanted, and few others."""

import fnmatch
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ursula.cold.segment.footer import Footer
from ursula.cold.segment.schema import SEGMENT_SCHEMA
from ursula.cold.segment.writer import encode_segment
from ursula.spark.reads.condition import Condition, Operator
from ursula.spark.reads.glob_pattern import glob_pattern
from ursula.spark.reads.options import ReadOptions
from ursula.spark.reads.selection import Selection

BUCKET = ReadOptions("b", None, "p")
STREAMS = 8
ROWS = 4

LETTERS = st.text("ab*?[]!-^\\&.\n é😀", max_size=8)
OPERATORS: list[Operator] = ["=", ">", ">=", "<", "<=", "in", "starts"]


def segment() -> tuple[pa.Table, Footer]:
    """A row group for each stream. Positions alternate between the streams, and times grow with positions."""
    rows = [
        {
            "bucket": "b",
            "stream": f"s{stream}",
            "kind": "close" if position == ROWS - 1 else "append",
            "offset": position,
            "position": position * STREAMS + stream,
            "appended_at": (position * STREAMS + stream) * 1_000_000,
            "payload": b"x",
        }
        for position in range(ROWS)
        for stream in range(STREAMS)
    ]
    table = pa.Table.from_pylist(rows, SEGMENT_SCHEMA)
    encoded = encode_segment(table, 0, -1, ROWS * STREAMS, row_group_rows=ROWS)
    return table, Footer.parse("segment", encoded.data.to_pybytes(), None)


@pytest.mark.parametrize(
    ("options", "row_groups"),
    [
        (BUCKET, list(range(STREAMS))),
        (replace(BUCKET, bucket="c"), []),
        (replace(BUCKET, streams=("s2", "s5", "x")), [2, 5]),
        (replace(BUCKET, streams=()), []),
        (replace(BUCKET, stream_prefix="s3"), [3]),
        (replace(BUCKET, stream_prefix="t"), []),
        (replace(BUCKET, stream_glob="s3*"), [3]),
        (replace(BUCKET, stream_glob="s3"), [3]),
        (replace(BUCKET, stream_glob="?3"), list(range(STREAMS))),
        (replace(BUCKET, ending_ms=2000), [0, 1]),
        (replace(BUCKET, starting_ms=((ROWS - 1) * STREAMS + 6) * 1000), [6, 7]),
    ],
)
def test_only_row_groups_that_may_have_wanted_rows_are_read(
    options: ReadOptions, row_groups: list[int]
) -> None:
    _, footer = segment()
    assert Selection(options).row_groups(footer) == row_groups


@pytest.mark.parametrize(
    ("condition", "positions"),
    [
        (Condition("stream", "=", "s3"), [3, 11, 19, 27]),
        (Condition("stream", "starts", "s"), list(range(ROWS * STREAMS))),
        (Condition("stream", "in", ("s3", "x")), [3, 11, 19, 27]),
        (Condition("position", ">", 29), [30, 31]),
        (Condition("position", "in", (3, 5, 99)), [3, 5]),
        (Condition("appended_at", ">=", 30_000_000), [30, 31]),
        (Condition("appended_at", "<=", 1_000_000), [0, 1]),
        (Condition("kind", "<", "append"), []),
    ],
)
def test_the_rows_are_those_that_pass(condition: Condition, positions: list[int]) -> None:
    table, _ = segment()
    assert table.filter(condition.mask(table[condition.column]))["position"].to_pylist() == positions


@given(st.lists(st.one_of(st.none(), LETTERS), min_size=1, max_size=6), st.sampled_from(OPERATORS), st.data())
def test_bounds_never_leave_out_what_passes(
    names: list[str | None], operator: Operator, data: st.DataObject
) -> None:
    several = st.lists(LETTERS, max_size=3).map(lambda some: tuple(sorted(some)))
    condition = Condition("stream", operator, data.draw(several if operator == "in" else LETTERS))
    passed = condition.mask(pa.array(names, pa.string()))
    there = [name for name in names if name is not None]
    if passed.true_count:
        assert condition.may_pass((min(there), max(there)))


@given(LETTERS, LETTERS)
def test_a_glob_is_what_it_is_in_a_shell(glob: str, name: str) -> None:
    expected = re.match(fnmatch.translate(glob), name) is not None
    assert (re.fullmatch(glob_pattern(glob), name) is not None) is expected


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("[a-c]*[!x-z]?", "bqqq1", True),
        ("[a-c]*[!x-z]?", "bx1", False),
        ("a[]]b", "a]b", True),
        ("a[b", "a[b", True),
        ("[z-a]", "m", False),
        ("[!z-a]", "m", True),
        ("***a***", "bab", True),
    ],
)
def test_some_globs(glob: str, name: str, matches: bool) -> None:
    assert (re.fullmatch(glob_pattern(glob), name) is not None) is matches


def test_many_stars_do_not_take_forever() -> None:
    assert re.fullmatch(glob_pattern("*a" * 30 + "*b"), "a" * 1000) is None
