"""`compact`: many segments become few large ones, while the server goes on.

Each new segment has all rows of a run of neighbours, with their positions. It is swapped in by one command of
the server's log, so a job that is killed leaves files that the server collects, and nothing else. A run whose
segments were merged meanwhile is left as it is: the next job finds it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..spark.joining import Joined, join
from ..spark.options import S3Options
from ..spark.server import ServerApi, ServerRefused
from ..spark.store import StoreFiles
from .progress import Progress, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENT_BYTES = 256 << 20
FULL_SHARE = 0.5
"""A segment of so much of the largest size is left as it is."""


class Segment(NamedTuple):
    """A live segment."""

    path: str
    first: int
    last: int
    rows: int
    bytes: int


class Run(NamedTuple):
    """Neighbours that become one."""

    group: int
    segments: list[Segment]

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(segment.bytes for segment in self.segments)


@dataclass
class Compacted:
    """What a job did; with `dry_run`, what it would do."""

    dry_run: bool
    segments_before: int
    segments_after: int
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    runs: int = 0
    overtaken: list[str] = field(default_factory=list)
    """New segments that were not swapped in, since old ones had been merged meanwhile."""


def compact(
    spark: "SparkSession",
    endpoint: str,
    *,
    path: str | None = None,
    s3: S3Options | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    dry_run: bool = False,
    retry_seconds: float = 120.0,
    progress: Progress = silent,
) -> Compacted:
    """Put the segments of a server together; `path` if tasks reach its store in another way than it does."""
    server, reached = ServerApi(endpoint.rstrip("/"), retry_seconds), s3 or S3Options()
    server.flush()  # so that the list of segments is that of now
    store = StoreFiles(path or server.store_root(), reached)
    live = store.all_live()
    work = [Run(one["group"], run) for one in live for run in runs(_segments(one), segment_bytes)]
    count = sum(len(one["segments"]) for one in live)
    report = Compacted(dry_run, count, count)
    total, done = sum(run.size for run in work), 0
    made = (None for _ in work) if dry_run else _joined(spark, store.root, reached, work)
    for run, joined in zip(work, made, strict=True):
        if joined is None or _is_swapped_in(server, run, joined, report):
            report.runs += 1
            report.segments_after -= len(run.segments) - 1
            report.bytes_before += run.size
            report.bytes_after += joined.size if joined else 0
            report.rows += sum(segment.rows for segment in run.segments)
        done += run.size
        progress(done, total)
    return report


def runs(segments: Iterable[Segment], segment_bytes: int) -> Iterator[list[Segment]]:
    """Neighbours that together are no larger than a segment should be; at least two."""
    run: list[Segment] = []
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


def _segments(live: dict[str, Any]) -> list[Segment]:
    return [Segment(**segment) for segment in live["segments"]]


def _joined(spark: "SparkSession", root: str, s3: S3Options, work: Sequence[Run]) -> Iterator[Joined]:
    """The new segments in the order of the runs, as tasks make them."""
    if not work:
        return

    def one(run: Run) -> Joined:
        segments = run.segments
        paths = [segment.path for segment in segments]
        return join(StoreFiles(root, s3), run.group, segments[0].first, segments[-1].last, paths)

    made = spark.sparkContext.parallelize(list(work), len(work)).map(one)
    yield from made.toLocalIterator(prefetchPartitions=True)


def _is_swapped_in(server: ServerApi, run: Run, joined: Joined, report: Compacted) -> bool:
    try:
        server.replace_segments(run.group, [segment.path for segment in run.segments], joined.path)
    except ServerRefused as refused:
        if refused.code != "segments_replaced":
            raise
        report.overtaken.append(joined.path)
        return False
    return True
