"""Views: the history of a bucket up to one position, and where its rows are.

A view names the segments that have the rows now. A merge may replace one of them before a task reads it; the
task then looks up again where the rows of its positions are.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...cold.state.generation_history import Lineage
from ...cold.state.placement import group_of
from ..executor_store import ExecutorStore
from ..http_client import POSITION_REWOUND, POSITION_TRIMMED, RequestRefused, ServerClient
from ..options import OptionError
from .bucket_start import find_bucket_start
from .options import ReadOptions


class PositionSpan(NamedTuple):
    """The rows of the positions after `first` and up to `last`; `path` is None if they are only in memory."""

    path: str | None
    first: int
    last: int
    rows: int
    size: int


class BucketView(NamedTuple):
    """The history of a bucket after a position (-1: all of it) and up to another, and where its rows are.

    The spans are in order. Their rows and bytes include those of other buckets.
    """

    cluster: str
    generation: int
    root: str
    after: int
    position: int
    spans: list[PositionSpan]
    exists: bool = True
    """Whether the bucket exists. A store that is read without its server may not have it yet."""

    @classmethod
    def parse(cls, text: str) -> "BucketView":
        """A view from its text."""
        found = cls._make(json.loads(text))
        return found._replace(spans=[PositionSpan._make(span) for span in found.spans])

    def hot_text(self) -> str:
        """The part of the view that is only in memory, as text."""
        return json.dumps(self._replace(spans=[span for span in self.spans if span.path is None]))


def take_view(options: ReadOptions, after: int | None) -> BucketView:
    """The view of a bucket from a position (None: the beginning) until now.

    RequestRefused if there is no such position.
    """
    if options.endpoint is None:
        return _stored_view(options, after)
    plan = ServerClient(options.endpoint, options.retry_seconds, options.auth).plan(options.bucket, after)
    return BucketView(
        cluster=plan["cluster"],
        generation=plan["generation"],
        root=options.path or plan["root"],
        after=plan["after"],
        position=plan["position"],
        spans=[*_cold(plan), *_hot(plan)],
    )


def bounded_view(options: ReadOptions) -> BucketView:
    """The view of a batch read: the history between its positions, until now if it has no end."""
    if options.view is not None:
        return BucketView.parse(options.view)
    view = take_view(options, options.after)
    until = view.position if options.until is None else options.until
    if until > view.position:
        raise OptionError(f"endingOffsets {until} is after {view.position}, where the bucket ends")
    if options.after is not None and options.after > until:
        raise OptionError(f"startingOffsets {options.after} is after endingOffsets {until}")
    return view._replace(position=until, spans=[span for span in view.spans if span.first < until])


def find_again(options: ReadOptions, gone: PositionSpan) -> list[PositionSpan]:
    """Where the rows of a file that no longer exists are now. For an executor."""
    try:
        if options.endpoint is None:
            view = _live_view(options, gone.first)[1]
        else:
            view = take_view(options, gone.first)
    except RequestRefused as error:
        if error.code != POSITION_TRIMMED:
            raise
        view = take_view(options, None)  # the segment begins before the bucket does
    return [
        span._replace(first=max(span.first, gone.first), last=min(span.last, gone.last))
        for span in view.spans
        if span.last > gone.first and span.first < gone.last
    ]


def _stored_view(options: ReadOptions, after: int | None) -> BucketView:
    """The view according to the store, without the rows of an earlier bucket of that name."""
    group, view = _live_view(options, after)
    start = find_bucket_start(view.root, options.s3, group, options.bucket)
    if start is None:
        return view
    if start.position is None:
        return view._replace(spans=[], exists=False)
    begin = start.position - 1
    if after is not None and after < begin:
        raise RequestRefused(POSITION_TRIMMED, f"the bucket was created at position {start.position}")
    return view._replace(
        after=max(view.after, begin),
        position=max(view.position, begin),  # the live list may be older than the manifest with the bucket
        spans=[span for span in view.spans if span.last > begin],
    )


def _live_view(options: ReadOptions, after: int | None) -> tuple[int, BucketView]:
    """The group of the bucket, and the live segments that the group has."""
    store = ExecutorStore(options.path or "", options.s3)
    generations = store.generations()
    live = store.live_list(group_of(options.bucket, generations[-1]["groups"]))
    begin = -1
    if after is not None:
        begin = after
        _check_rewound(generations, live, after)
    view = BucketView(
        cluster=live["cluster"],
        generation=live["generation"],
        root=store.root,
        after=begin,
        position=live["position"],
        spans=[span for span in _cold(live) if span.last > begin],
    )
    return live["group"], view


def _check_rewound(generations: list[dict[str, Any]], live: dict[str, Any], position: int) -> None:
    ended = {one["generation"]: one.get("ended", {}) for one in generations}
    end = Lineage(ended, live["generation"]).end_before(live["group"], position)
    if end is not None:
        raise RequestRefused(POSITION_REWOUND, f"a restore went back to position {end}", end)


def _cold(plan: dict[str, Any]) -> Iterator[PositionSpan]:
    for one in plan["segments"]:
        yield PositionSpan(one["path"], one["first"], one["last"], one["rows"], one["bytes"])


def _hot(plan: dict[str, Any]) -> Iterator[PositionSpan]:
    for one in plan["hot"]:
        yield PositionSpan(None, one["first"], one["last"], one["rows"], one["bytes"])
