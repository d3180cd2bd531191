"""Checks that a segment is what was written, for the job `verify`."""

from typing import NamedTuple

from ...cold.segment.report import SegmentReport, examine, unreadable
from ..executor_store import ExecutorStore


class ExpectedSegment(NamedTuple):
    """A segment as the state describes it."""

    key: str
    digest: str
    footer_crc: int


def check_segment(store: ExecutorStore, expected: ExpectedSegment) -> SegmentReport:
    """Read all of a segment and check everything that can be checked. Damage is reported, never raised."""
    try:
        data = store.read(expected.key)
    except FileNotFoundError:
        return unreadable(expected.key, ["it is missing"])
    return examine(expected.key, data, expected.digest, expected.footer_crc)
