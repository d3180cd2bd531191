"""`compact`: merges many segments into few large ones while the server runs.

Each new segment has all rows of a run of neighbours, with their positions. One command of the server's log
swaps it in, so a job that is killed leaves nothing behind but orphans, which the server deletes. If the
server has merged segments of a run first, the run is skipped: the next job finds whatever is left of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..cold.state.manifest import LiveSegment
from ..spark.executor_store import ExecutorStore
from ..spark.http_client import ServerClient, ServerRefused
from ..spark.options import S3Options
from ..spark.tasks.merge_segments import MergedSegment, merge_segments
from .progress import CountProgress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_BYTES = 256 << 20
FULL_SHARE = 0.5
"""A segment that has this share of the largest size, or more, is not merged."""


class MergeRun(NamedTuple):
    """Neighbouring segments that become one."""

    group: int
    segments: list[LiveSegment]

    @property
    def first(self) -> int:
        """Their rows have the positions after this one."""
        return self.segments[0].first

    @property
    def last(self) -> int:
        """Their rows have the positions up to this one."""
        return self.segments[-1].last

    @property
    def paths(self) -> list[str]:
        """Their paths from the root of the store, in order."""
        return [segment.path for segment in self.segments]

    @property
    def size(self) -> int:
        """How many bytes they have together."""
        return sum(segment.bytes for segment in self.segments)


@dataclass
class Compacted:
    """The result of a job; with `dry_run`, what it would do."""

    dry_run: bool
    segments_before: int
    segments_after: int
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    runs: int = 0
    overtaken: list[str] = field(default_factory=list)
    """New segments that were not swapped in because the server had merged some of the old ones first."""


def compact(
    spark: "SparkSession",
    endpoint: str,
    *,
    path: str | None = None,
    s3: S3Options | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    dry_run: bool = False,
    retry_seconds: float = 120.0,
    auth: str | None = None,
    progress: CountProgress = no_progress,
) -> Compacted:
    """Merge the segments of a server. Give `path` if tasks reach its store under a different root."""
    server, s3 = ServerClient(endpoint.rstrip("/"), retry_seconds, auth), s3 or S3Options()
    server.flush()  # so that the live lists are up to date
    store = ExecutorStore(path or server.store_root(), s3)
    live = store.all_live()
    work = [MergeRun(one["group"], run) for one in live for run in runs(_segments(one), segment_bytes)]
    count = sum(len(one["segments"]) for one in live)
    report = Compacted(dry_run, count, count)
    total, done = sum(run.size for run in work), 0
    made = (None for _ in work) if dry_run else _merged(spark, store.root, s3, work)
    for run, merged in zip(work, made, strict=True):
        if merged is None or _swap_in(server, run, merged, report):
            report.runs += 1
            report.segments_after -= len(run.segments) - 1
            report.bytes_before += run.size
            report.bytes_after += merged.size if merged else 0
            report.rows += sum(segment.rows for segment in run.segments)
        done += run.size
        progress(done, total)
    return report


def runs(segments: Iterable[LiveSegment], segment_bytes: int) -> Iterator[list[LiveSegment]]:
    """Runs of at least two neighbours that together are no larger than a segment should be."""
    run: list[LiveSegment] = []
    size = 0
    for segment in segments:
        is_full = segment.bytes >= FULL_SHARE * segment_bytes
        if is_full or size + segment.bytes > segment_bytes:
            if len(run) > 1:
                yield run
            run, size = [], 0
        if not is_full:
            run.append(segment)
            size += segment.bytes
    if len(run) > 1:
        yield run


def _segments(live: dict[str, Any]) -> list[LiveSegment]:
    return [LiveSegment(**segment) for segment in live["segments"]]


def _merged(
    spark: "SparkSession", root: str, s3: S3Options, work: Sequence[MergeRun]
) -> Iterator[MergedSegment]:
    """The new segments in the order of the runs, as tasks write them."""
    if not work:
        return

    def merge(run: tuple[int, int, int, list[str]]) -> MergedSegment:
        return merge_segments(ExecutorStore(root, s3), *run)

    # Tuples, since an executor cannot import the classes of this module.
    runs = [(run.group, run.first, run.last, run.paths) for run in work]
    made = spark.sparkContext.parallelize(runs, len(runs)).map(merge)
    yield from made.toLocalIterator(prefetchPartitions=True)


def _swap_in(server: ServerClient, run: MergeRun, merged: MergedSegment, report: Compacted) -> bool:
    """Replace the segments of a run; returns False if the server has merged some of them first."""
    try:
        server.replace_segments(run.group, run.paths, merged.path)
    except ServerRefused as refused:
        if refused.code != "segments_replaced":
            raise
        report.overtaken.append(merged.path)
        return False
    return True
