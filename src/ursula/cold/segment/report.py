"""A report on a whole segment: what it contains, and whether it is damaged. Blocking: for threads."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..objects.checksum import digest_of
from .footer import Footer, decode_row_group
from .schema import NAME_COLUMNS

_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, TypeError)
"""The exceptions that decoding damaged bytes may raise."""


class Range(NamedTuple):
    """Consecutive messages of a stream: the offsets from `start` up to `end`."""

    bucket: str
    stream: str
    incarnation: str
    start: int
    end: int
    messages: int


class RowGroupReport(NamedTuple):
    """The size of a row group: its rows, its bytes in the file, and the bytes of its messages."""

    rows: int
    bytes: int
    payload_bytes: int


class SegmentReport(NamedTuple):
    """The contents of a segment. If there are problems, only the parts that could be read."""

    key: str
    bytes: int
    first: int
    last: int
    rows: int
    payload_bytes: int
    kinds: dict[str, int]
    stream_count: int
    row_groups: list[RowGroupReport]
    ranges: list[Range]
    problems: list[str]


def unreadable(key: str, problems: list[str], size: int = 0) -> SegmentReport:
    """The report on a segment whose contents cannot be read, or that is missing."""
    return SegmentReport(
        key=key,
        bytes=size,
        first=0,
        last=0,
        rows=0,
        payload_bytes=0,
        kinds={},
        stream_count=0,
        row_groups=[],
        ranges=[],
        problems=problems,
    )


def examine(key: str, data: bytes, digest: str | None = None, footer_crc: int | None = None) -> SegmentReport:
    """Read all of a segment and check everything that can be checked; damage is reported, never raised."""
    problems = []
    if digest is not None and digest_of(data) != digest:
        problems.append("its digest differs from the one it was stored with")
    try:
        footer = Footer.parse(key, data, footer_crc)
        first, last = footer.positions
    except _UNREADABLE as error:
        return unreadable(key, [*problems, _plain(key, error)], len(data))
    kinds: Counter[str] = Counter()
    groups: list[RowGroupReport] = []
    ranges: list[Range] = []
    streams: set[tuple[str, ...]] = set()
    for row_group in footer.row_groups:
        try:
            table = decode_row_group(footer, row_group, data[row_group.start : row_group.end])
            _check_positions(table, first, last)
            found = ranges_of(table)
        except _UNREADABLE as error:
            problems.append(_plain(key, error))
            continue
        size = row_group.end - row_group.start
        groups.append(RowGroupReport(row_group.row_count, size, _payload_bytes(table)))
        kinds.update(_kinds(table))
        streams.update(_streams(table))
        for one in found:
            _join(ranges, one)
    return SegmentReport(
        key=key,
        bytes=len(data),
        first=first,
        last=last,
        rows=sum(group.rows for group in groups),
        payload_bytes=sum(group.payload_bytes for group in groups),
        kinds=dict(sorted(kinds.items())),
        stream_count=len(streams),
        row_groups=groups,
        ranges=ranges,
        problems=problems,
    )


def ranges_of(table: pa.Table) -> list[Range]:
    """The ranges of streams in a row group; ValueError if a message's length does not match its offsets."""
    appends = table.filter(pc.equal(table["kind"], "append")).combine_chunks()
    count = appends.num_rows
    if not count:
        return []
    starts, ends = appends["offset"], appends["next_offset"]
    lengths = pc.fill_null(pc.binary_length(appends["payload"]), 0).cast(pa.int64())
    if not pc.all(pc.equal(lengths, pc.subtract(ends, starts))).as_py():
        raise ValueError("the length of a message does not match its offsets")
    breaks = pc.not_equal(starts.slice(1), ends.slice(0, count - 1))
    for name in NAME_COLUMNS:
        column = pc.fill_null(appends[name], "")
        breaks = pc.or_(breaks, pc.not_equal(column.slice(1), column.slice(0, count - 1)))
    firsts = [0, *(row + 1 for row in pc.indices_nonzero(breaks).to_pylist())]
    ranges = []
    for first, following in zip(firsts, [*firsts[1:], count], strict=True):
        bucket, stream, incarnation = (appends[name][first].as_py() or "" for name in NAME_COLUMNS)
        ranges.append(
            Range(
                bucket=bucket,
                stream=stream,
                incarnation=incarnation,
                start=starts[first].as_py(),
                end=ends[following - 1].as_py(),
                messages=following - first,
            )
        )
    return ranges


def _join(ranges: list[Range], one: Range) -> None:
    """Add a range; join it with the last one if it continues that."""
    if ranges and ranges[-1][:3] == one[:3] and ranges[-1].end == one.start:
        last = ranges.pop()
        one = one._replace(start=last.start, messages=last.messages + one.messages)
    ranges.append(one)


def _check_positions(table: pa.Table, first: int, last: int) -> None:
    found = pc.min_max(table["position"]).as_py()
    if table.num_rows and not first < found["min"] <= found["max"] <= last:
        raise ValueError(f"it has rows of the positions {found['min']} to {found['max']}")


def _payload_bytes(table: pa.Table) -> int:
    return pc.sum(pc.binary_length(table["payload"])).as_py() or 0


def _kinds(table: pa.Table) -> dict[str, int]:
    counts = pc.value_counts(table["kind"])
    return {found["values"] or "": found["counts"] for found in counts.to_pylist()}


def _streams(table: pa.Table) -> set[tuple[str, ...]]:
    names = table.select(list(NAME_COLUMNS)).group_by(list(NAME_COLUMNS)).aggregate([])
    return set(zip(*(names[name].to_pylist() for name in NAME_COLUMNS), strict=True))


def _plain(key: str, error: Exception) -> str:
    return str(error).removeprefix(f"{key}: ")
