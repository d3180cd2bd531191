"""A read as partitions: one position is taken, and what lies before it is shared out to tasks.

A partition is logical: a bucket and positions. The files that it names are where they lie now; if one is
gone when a task comes to it, because it was merged, the task asks again for its positions.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from pyspark.sql.datasource import InputPartition

from ..cold.state.generation_history import Lineage
from .beginnings import beginning_of
from .options import OptionError, ReadOptions
from .server import POSITION_REWOUND, POSITION_TRIMMED, Refused, ServerApi
from .store import StoreFiles

TASK_BYTES = 32 << 20
HOT_TASK_BYTES = 16 << 20


class Stretch(NamedTuple):
    """Rows of the positions after `first` up to `last`; `path` None if they are in memory only."""

    path: str | None
    first: int
    last: int
    rows: int
    size: int


class Snapshot(NamedTuple):
    """The history of a bucket after a position (-1: all) and up to another, and whose positions they are.

    Its stretches are in order; the rows and bytes of one count those of other buckets too.
    """

    cluster: str
    generation: int
    root: str
    after: int
    position: int
    stretches: list[Stretch]
    is_there: bool = True
    """Whether there is such a bucket; a store without its server may not have it, or not yet."""

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        """A snapshot from its text."""
        found = cls._make(json.loads(text))
        return found._replace(stretches=[Stretch._make(stretch) for stretch in found.stretches])

    def hot_text(self) -> str:
        """The part of it that is in memory only, as text."""
        return json.dumps(self._replace(stretches=[one for one in self.stretches if one.path is None]))


class Task(InputPartition):
    """Some of the history, for one task. Positions are after `after` and up to `until`."""

    def __init__(self, root: str, after: int, until: int, stretches: list[Stretch]) -> None:
        self.root = root
        self.after = after
        self.until = until
        self.stretches = stretches


def take_snapshot(options: ReadOptions, after: int | None) -> Snapshot:
    """What happened in the bucket after a position (None: all), as of now. Refused if there is none such."""
    if options.endpoint is None:
        return _stored_snapshot(options, after)
    plan = ServerApi(options.endpoint, options.retry_seconds).plan(options.bucket, after)
    return Snapshot(
        plan["cluster"],
        plan["generation"],
        options.path or plan["root"],
        plan["after"],
        plan["position"],
        [*_cold(plan), *_hot(plan)],
    )


def tasks_of(options: ReadOptions) -> list[Task]:
    """The partitions of a batch read."""
    snapshot = bounded_snapshot(options)
    return tasks_up_to(snapshot, snapshot.position)


def bounded_snapshot(options: ReadOptions) -> Snapshot:
    """What a batch read takes: the history between its positions, as of now if it names no end."""
    if options.snapshot is not None:
        return Snapshot.parse(options.snapshot)
    snapshot = take_snapshot(options, options.after)
    until = snapshot.position if options.until is None else options.until
    if until > snapshot.position:
        raise OptionError(f"endingOffsets {until} lies behind {snapshot.position}, where the bucket ends")
    if options.after is not None and options.after > until:
        raise OptionError(f"startingOffsets {options.after} lies behind endingOffsets {until}")
    wanted = [stretch for stretch in snapshot.stretches if stretch.first < until]
    return snapshot._replace(position=until, stretches=wanted)


def tasks_up_to(snapshot: Snapshot, until: int) -> list[Task]:
    """A snapshot up to a position as partitions."""
    wanted = [stretch for stretch in snapshot.stretches if stretch.first < until]
    return [Task(snapshot.root, snapshot.after, until, some) for some in _shared_out(wanted)]


def found_again(options: ReadOptions, gone: Stretch) -> list[Stretch]:
    """Where rows lie now whose file is gone. For an executor."""
    try:
        if options.endpoint is None:
            snapshot = _live_snapshot(options, gone.first)[1]
        else:
            snapshot = take_snapshot(options, gone.first)
    except Refused as error:
        if error.code != POSITION_TRIMMED:
            raise
        snapshot = take_snapshot(options, None)  # the segment begins before the bucket does
    return [
        stretch._replace(first=max(stretch.first, gone.first), last=min(stretch.last, gone.last))
        for stretch in snapshot.stretches
        if stretch.last > gone.first and stretch.first < gone.last
    ]


def _stored_snapshot(options: ReadOptions, after: int | None) -> Snapshot:
    """What the store has of the bucket that is there now, and not of one of its name that was before."""
    group, snapshot = _live_snapshot(options, after)
    found = beginning_of(snapshot.root, options.s3, group, options.bucket)
    if found is None:
        return snapshot
    if found.position is None:
        return snapshot._replace(stretches=[], is_there=False)
    begin = found.position - 1
    if after is not None and after < begin:
        raise Refused(POSITION_TRIMMED, f"the bucket was made at position {found.position}")
    return snapshot._replace(
        after=max(snapshot.after, begin),
        position=max(snapshot.position, begin),  # the live list may come later than what told of the bucket
        stretches=[stretch for stretch in snapshot.stretches if stretch.last > begin],
    )


def _live_snapshot(options: ReadOptions, after: int | None) -> tuple[int, Snapshot]:
    """The group of the bucket, and what live segments it has."""
    store = StoreFiles(options.path or "", options.s3)
    generations = store.generations()
    live = store.live_list(_group_of(options.bucket, generations[-1]["groups"]))
    begin = -1
    if after is not None:
        begin = after
        _check_rewound(generations, live, after)
    found = [stretch for stretch in _cold(live) if stretch.last > begin]
    snapshot = Snapshot(live["cluster"], live["generation"], store.root, begin, live["position"], found)
    return live["group"], snapshot


def _group_of(bucket: str, groups: int) -> int:
    """The number of the group that owns a bucket, as the server chooses it."""
    return crc32(bucket.encode()) % groups


def _check_rewound(generations: list[dict[str, Any]], live: dict[str, Any], position: int) -> None:
    ended = {one["generation"]: one.get("ended", {}) for one in generations}
    end = Lineage(ended, live["generation"]).end_before(live["group"], position)
    if end is not None:
        raise Refused(POSITION_REWOUND, f"a restore went back to position {end}", end)


def _cold(plan: dict[str, Any]) -> Iterator[Stretch]:
    for one in plan["segments"]:
        yield Stretch(one["path"], one["first"], one["last"], one["rows"], one["bytes"])


def _hot(plan: dict[str, Any]) -> Iterator[Stretch]:
    for one in plan["hot"]:
        yield Stretch(None, one["first"], one["last"], one["rows"], one["bytes"])


def _shared_out(stretches: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    """Neighbours together, as much as one task should have; hot ones, which one server sends, less."""
    some: list[Stretch] = []
    size = 0
    for stretch in stretches:
        limit = HOT_TASK_BYTES if stretch.path is None else TASK_BYTES
        changes = some and (some[-1].path is None) != (stretch.path is None)
        if some and (changes or size + stretch.size > limit):
            yield some
            some, size = [], 0
        some.append(stretch)
        size += stretch.size
    if some:
        yield some
