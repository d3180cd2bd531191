"""The hot rows of a bucket, in steps that readers outside the server can divide among themselves."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from ..bucket import Bucket
from ..journal import ROW_BYTES, Journal

STEP_BYTES = 1 << 20


class Step(NamedTuple):
    """The rows of the positions after `first` up to `last`; `bytes` is an estimate."""

    first: int
    last: int
    rows: int
    bytes: int


def hot_steps(bucket: Bucket, after: int) -> list[Step]:
    """The rows of a bucket after a position that are in memory, in steps of about 1 MiB.

    The time that this takes does not depend on the number of rows: sizes are estimated from the average row.
    """
    steps: list[Step] = []
    for journal in bucket.all_parts():
        steps += _steps_of(journal, steps[-1].last if steps else after)
    return steps


def _steps_of(journal: Journal, after: int) -> Iterator[Step]:
    positions, first_rows, row_count = journal.positions, journal.first_rows, len(journal)
    if not row_count:
        return
    row_bytes = journal.byte_count / row_count + ROW_BYTES
    rows_per_step = max(1, int(STEP_BYTES / row_bytes))
    number = bisect_left(positions, after + 1)
    while number < len(positions):
        begin = first_rows[number]
        following = max(number + 1, bisect_left(first_rows, begin + rows_per_step))
        end = first_rows[following] if following < len(first_rows) else row_count
        last = positions[min(following, len(positions)) - 1]
        yield Step(after, last, end - begin, int((end - begin) * row_bytes))
        number, after = following, last
