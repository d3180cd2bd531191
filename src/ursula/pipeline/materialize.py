"""`materialize`: folds every stream of a bucket into a state with the user's function, and keeps the states.

The next job continues from those states: it reads only new messages. States can also be published as
snapshots, so that readers begin with them, without any code in the writers.
"""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .. import spark as tables
from ..cold.objects.store import UNFINISHED
from ..engine.offline.verify import Progress
from ..spark.executor_store import ExecutorStore, absolute
from ..spark.options import OptionError, S3Options
from ..spark.reads.options import ReadOptions, parse_read_options
from ..spark.reads.view import take_view
from ..spark.tasks.fold import APPEND, ENDED, JSON, UNDELETED, Fold, SnapshotTarget, fold_streams
from ..spark.tasks.state_files import read_states, write_states
from .job_lease import Document, JobLease, RunningJob, folder_of
from .leftovers import folder_of_run, remove_files, remove_unfinished
from .progress import no_step_progress, report_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_STEPS = {"append": APPEND, "delete": ENDED, "expire": ENDED, "undelete": UNDELETED}
_ROWS = (
    "stream string, incarnation string, step int, is_json boolean, "
    "offset bigint, next_offset bigint, position bigint, index int, value binary"
)
_WRITTEN = "path string, states bigint, changed bigint, partial bigint, published string"


@dataclass
class Materialized:
    """The result of a job; with `dry_run`, what it would do."""

    dry_run: bool
    bucket: str
    after: int
    """The position that earlier jobs have reached; -1 if there were none."""
    position: int
    states: int = 0
    changed: int = 0
    partial: int = 0
    """Streams without a state, since their beginning is missing: forks, and those that were trimmed."""
    path: str | None = None
    """The folder with the states, as Parquet files."""
    published: dict[str, int] = field(default_factory=dict)
    """How many states were published, and how many were not, by reason."""


def materialize(
    spark: "SparkSession",
    target: str,
    options: Mapping[str, str],
    fold: Fold | str,
    *,
    target_s3: S3Options | None = None,
    publish: bool = False,
    trim: bool = False,
    dry_run: bool = False,
    progress: Progress = no_step_progress,
) -> Materialized:
    """Fold the messages of a bucket since the last job; `fold` is a function, or "module:function".

    `options` are those of a read. With `publish`, the changed states become snapshots; with `trim`, the
    streams are trimmed up to them.
    """
    read = parse_read_options({**options, "includeEvents": "true"})
    if read.after is not None or read.until is not None:
        raise OptionError("a job continues where the last one ended: leave out the offsets")
    if trim and not publish:
        raise OptionError("streams are trimmed to published snapshots: give publish too")
    if publish and read.endpoint is None:
        raise OptionError("a server publishes snapshots: give endpoint")
    function = fold if callable(fold) else load_fold(fold)
    target, s3 = absolute(target), target_s3 or read.s3
    place = _StateTarget(target, s3, read.bucket)
    if dry_run:
        return _planned(read, target, place.lease.done(), dry_run)[0]
    server = None
    if publish:
        server = SnapshotTarget(read.endpoint or "", read.bucket, trim, read.retry_seconds, read.auth)
    with place.lease.acquire() as job:
        place.tidy(job)
        report, cluster = _planned(read, target, job.done, dry_run)
        rows = _rows(spark, options, report.position, report.after)
        if job.done is not None:
            rows = rows.union(place.states_before(spark, job.done["files"]))
        folder = folder_of_run(place.folder, job.number)
        with report_tasks(spark, ("reading messages", "folding streams"), progress):
            files = place.write(rows, function, server, folder)
        paths = [file["path"] for file in files]
        job.commit({"cluster": cluster, "position": report.position, "files": paths})
        place.tidy(job)
    report.path = folder
    report.states = sum(file["states"] for file in files)
    report.changed = sum(file["changed"] for file in files)
    report.partial = sum(file["partial"] for file in files)
    published = Counter[str]()
    for file in files:
        published.update(json.loads(file["published"]))
    report.published = dict(published)
    return report


def _planned(
    read: ReadOptions, target: str, before: Document | None, dry_run: bool
) -> tuple[Materialized, str]:
    """The positions from which and up to which to fold, and the cluster that they belong to."""
    view = take_view(read, None)
    if not view.exists:
        raise OptionError(f"{view.root} has no bucket {read.bucket!r}")
    if before is None:
        return Materialized(dry_run, read.bucket, -1, view.position), view.cluster
    if before["cluster"] != view.cluster:
        raise OptionError(f"{target} has states of another cluster: choose another place")
    view = take_view(read, before["position"])
    return Materialized(dry_run, read.bucket, before["position"], view.position), view.cluster


def load_fold(name: str) -> Fold:
    """The function with a name like "module:function". Modules in the current folder are found too.

    Executors get its module with the function, so they need not have it.
    """
    from pyspark import cloudpickle

    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise OptionError(f"a fold must be module:function, not {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        home = importlib.import_module(module)
        found = getattr(home, function)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"there is no fold {name}: {error}") from None
    if not callable(found):
        raise OptionError(f"{name} is not a function")
    cloudpickle.register_pickle_by_value(home)  # type: ignore[no-untyped-call]
    fold: Fold = found
    return fold


class _StateTarget:
    """The place that has the states of a bucket."""

    def __init__(self, target: str, s3: S3Options, bucket: str) -> None:
        self._target = target
        self._s3 = s3
        self._store = ExecutorStore(target, s3)
        self.folder = f"states/{quote(bucket, safe='')}"
        self.lease = JobLease(
            target, s3, f"states/{folder_of(bucket)}", f"materialize of the bucket {bucket!r} at {target}"
        )

    def tidy(self, job: RunningJob) -> None:
        """Remove all states except those of the last job that committed."""
        named = job.done["files"] if job.done is not None else ()
        remove_files(self._store, self.folder, job.number, named)
        remove_unfinished(self._store, UNFINISHED)

    def states_before(self, spark: "SparkSession", files: list[str]) -> "DataFrame":
        """The previous states, as rows that sort before the others."""
        target, s3 = self._target, self._s3

        def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            numbers = (number for batch in batches for number in batch.column(0).to_pylist())
            return read_states(target, s3, (files[number] for number in numbers))

        numbers = spark.range(0, len(files), 1, max(1, len(files)))  # a file for each task, without a shuffle
        return numbers.mapInArrow(read, _ROWS)

    def write(
        self, rows: "DataFrame", fold: Fold, server: SnapshotTarget | None, folder: str
    ) -> list[dict[str, Any]]:
        """Fold rows and write the states; returns a description of each file."""
        target, s3 = self._target, self._s3

        def work(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return write_states(target, s3, folder, fold_streams(fold, server, batches))

        together = rows.repartition("stream", "incarnation")
        in_order = together.sortWithinPartitions("stream", "incarnation", "position", "index", "offset")
        written = in_order.drop("index").mapInArrow(work, _WRITTEN)
        return [row.asDict() for row in written.collect()]


def _rows(spark: "SparkSession", options: Mapping[str, str], until: int, after: int) -> "DataFrame":
    """The history, as rows to fold. Whatever a fold does not need is dropped before the shuffle."""
    from pyspark.sql import functions as f

    between = {"includeEvents": "true", "endingOffsets": str(until)}
    if after >= 0:
        between["startingOffsets"] = str(after)
    rows = tables.read(spark, **{**options, **between})
    kind = f.col("kind")
    media_type = f.lower(f.trim(f.substring_index("content_type", ";", 1)))
    return rows.where(kind.isin(*_STEPS)).select(
        "stream",
        "incarnation",
        f.create_map(*(f.lit(part) for step in _STEPS.items() for part in step))[kind].alias("step"),
        f.coalesce(media_type == JSON, f.lit(False)).alias("is_json"),
        "offset",
        "next_offset",
        "position",
        "index",
        "value",
    )
