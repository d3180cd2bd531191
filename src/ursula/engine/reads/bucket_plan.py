"""Where the history of a bucket lies, for readers that fetch it themselves: segments, and what is hot."""

from typing import NamedTuple

from ...cold.state.manifest import LiveSegment
from ...model.outcomes import FeedPage, Refused
from ...model.read.hot_ranges import Step, hot_steps
from ...model.state import State
from ..segment_info import live_segment


class Plan(NamedTuple):
    """What has the rows of a bucket after a position and up to another: each of them once, beside rows of
    other buckets, and of one of this name that was there before."""

    after: int
    position: int
    segments: list[LiveSegment]
    hot: list[Step]


def plan(state: State, bucket: str, after: int | None) -> Plan | Refused:
    """The plan for what happened in a bucket after a position (None: for everything)."""
    page = state.reads.read_feed(bucket, after, None, 0)
    if isinstance(page, Refused):
        return page
    if not isinstance(page, FeedPage):
        raise TypeError("to say where a feed ends nothing has to be fetched")
    found = state.buckets[bucket]
    begin = found.position - 1 if after is None else after
    position = max(page.tail, state.stored_to)
    if begin >= page.tail:
        return Plan(begin, position, [], [])
    segments = [live_segment(segment) for segment in state.segments.all_after(begin)]
    return Plan(begin, position, segments, hot_steps(found, max(begin, state.stored_to)))
