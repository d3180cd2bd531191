"""Plans: where the history of a bucket is, for readers that fetch it themselves: segments, and hot ranges."""

from typing import NamedTuple

from ...cold.state.manifest import LiveSegment
from ...model.outcomes import FeedPage, Refused
from ...model.read.hot_ranges import Step, hot_steps
from ...model.state import State
from ..segment_info import live_segment


class Plan(NamedTuple):
    """The segments and hot ranges with the rows of a bucket after one position and up to another.

    Each row is there once. The segments also have rows of other buckets, and of an earlier bucket of the same
    name.
    """

    after: int
    position: int
    segments: list[LiveSegment]
    hot: list[Step]


def plan(state: State, bucket: str, after: int | None) -> Plan | Refused:
    """The plan for the history of a bucket after a position (None: all of it)."""
    page = state.reads.read_feed(bucket, after, None, 0)
    if isinstance(page, Refused):
        return page
    if not isinstance(page, FeedPage):
        raise TypeError("finding the end of a feed must not need the store")
    found = state.buckets[bucket]
    begin = found.position - 1 if after is None else after
    position = max(page.tail, state.stored_to)
    if begin >= page.tail:
        return Plan(begin, position, [], [])
    segments = [live_segment(segment) for segment in state.segments.all_after(begin)]
    return Plan(begin, position, segments, hot_steps(found, max(begin, state.stored_to)))
