"""`materialize`: every stream of a bucket folded into a state by a function of yours, as a table of states.

The next job goes on from those states: it reads only what is new. States can be published as snapshots too,
so that readers begin with them, without code for it in the writers.
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
from ..spark.folding import APPEND, ENDED, JSON, UNDELETED, Fold, Publishing, fold_streams
from ..spark.options import OptionError, ReadOptions, S3Options, parse_read_options
from ..spark.planning import take_snapshot
from ..spark.store import StoreFiles, absolute
from .ledger import Document, Ledger, Run, folder_of
from .leftovers import folder_of_run, remove_files, remove_unfinished
from .progress import tasks_told, untold

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_STEPS = {"append": APPEND, "delete": ENDED, "expire": ENDED, "undelete": UNDELETED}
_WRITTEN = "path string, states bigint, changed bigint, partial bigint, published string"


@dataclass
class Materialized:
    """What a job did; with `dry_run`, what it would do."""

    dry_run: bool
    bucket: str
    after: int
    """The position that was reached before; -1 if there was none."""
    position: int
    states: int = 0
    changed: int = 0
    partial: int = 0
    """Streams without a state, since their beginning is not there: forks, and those that were trimmed."""
    path: str | None = None
    """Where the states are: Parquet files in this folder."""
    published: dict[str, int] = field(default_factory=dict)
    """How many were published, and how many were not, by the reason."""


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
    progress: Progress = untold,
) -> Materialized:
    """Fold what happened in a bucket since the last time; `fold` is a function, or "module:function".

    `options` are those of a read. With `publish` the changed states become snapshots, with `trim` what they
    stand for is dropped from the streams.
    """
    read = parse_read_options({**options, "includeEvents": "true"})
    if read.after is not None or read.until is not None:
        raise OptionError("it goes on where the last one ended: leave out the offsets")
    if trim and not publish:
        raise OptionError("only what is published can be trimmed to: say publish too")
    if publish and read.endpoint is None:
        raise OptionError("snapshots are published by a server: say endpoint")
    function = fold if callable(fold) else load_fold(fold)
    target, reached = absolute(target), target_s3 or read.s3
    place = _Place(target, reached, read.bucket)
    if dry_run:
        return _planned(read, target, place.ledger.done(), dry_run)[0]
    publishing = Publishing(read.endpoint or "", read.bucket, trim, read.retry_seconds) if publish else None
    with place.ledger.run() as run:
        place.tidy(run)
        report, cluster = _planned(read, target, run.done, dry_run)
        rows = _rows(spark, options, report.position, report.after)
        if run.done is not None:
            rows = rows.union(_states_before(spark, target, reached, run.done["files"]))
        folder = folder_of_run(place.folder, run.number)
        with tasks_told(spark, ("reading messages", "folding streams"), progress):
            files = _fold(spark, rows, function, publishing, target, reached, folder)
        paths = [file["path"] for file in files]
        run.commit({"cluster": cluster, "position": report.position, "files": paths})
        place.tidy(run)
    report.path = folder
    report.states = sum(file["states"] for file in files)
    report.changed = sum(file["changed"] for file in files)
    report.partial = sum(file["partial"] for file in files)
    told = Counter[str]()
    for file in files:
        told.update(json.loads(file["published"]))
    report.published = dict(told)
    return report


def _planned(
    read: ReadOptions, target: str, before: Document | None, dry_run: bool
) -> tuple[Materialized, str]:
    """From where to where to go, and of which cluster."""
    snapshot = take_snapshot(read, None)
    if not snapshot.is_there:
        raise OptionError(f"{snapshot.root} has no bucket {read.bucket!r}")
    if before is None:
        return Materialized(dry_run, read.bucket, -1, snapshot.position), snapshot.cluster
    if before["cluster"] != snapshot.cluster:
        raise OptionError(f"{target} has states of another cluster: choose another place")
    snapshot = take_snapshot(read, before["position"])
    return Materialized(dry_run, read.bucket, before["position"], snapshot.position), snapshot.cluster


def load_fold(name: str) -> Fold:
    """The function of a name like "module:function"; modules of this folder are found too.

    Executors get its module with it: they need not have it.
    """
    from pyspark import cloudpickle

    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise OptionError(f"the fold is written as module:function, not {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        home = importlib.import_module(module)
        found = getattr(home, function)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"there is no fold {name}: {error}") from None
    if not callable(found):
        raise OptionError(f"{name} is no function")
    cloudpickle.register_pickle_by_value(home)  # type: ignore[no-untyped-call]
    fold: Fold = found
    return fold


class _Place:
    """Where the states of a bucket are."""

    def __init__(self, target: str, s3: S3Options, bucket: str) -> None:
        self._store = StoreFiles(target, s3)
        self.folder = f"states/{quote(bucket, safe='')}"
        self.ledger = Ledger(
            target, s3, f"states/{folder_of(bucket)}", f"materialize of the bucket {bucket!r} at {target}"
        )

    def tidy(self, run: Run) -> None:
        """Remove the states that are not those of the last job."""
        named = run.done["files"] if run.done is not None else ()
        remove_files(self._store, self.folder, run.number, named)
        remove_unfinished(self._store, UNFINISHED)


def _rows(spark: "SparkSession", options: Mapping[str, str], until: int, after: int) -> "DataFrame":
    """What happened, as rows to fold: what does not matter is left out before it is sent around."""
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


def _states_before(spark: "SparkSession", target: str, s3: S3Options, files: list[str]) -> "DataFrame":
    """The last states as rows that come first."""

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from ..spark.states import read_states

        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return read_states(target, s3, (files[number] for number in numbers))

    numbers = spark.range(0, len(files), 1, max(1, len(files)))  # a file for each task, without a shuffle
    schema = (
        "stream string, incarnation string, step int, is_json boolean, "
        "offset bigint, next_offset bigint, position bigint, index int, value binary"
    )
    return numbers.mapInArrow(read, schema)


def _fold(
    spark: "SparkSession",
    rows: "DataFrame",
    fold: Fold,
    publishing: Publishing | None,
    target: str,
    s3: S3Options,
    folder: str,
) -> list[dict[str, Any]]:
    def work(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from ..spark.states import write_states

        return write_states(target, s3, folder, fold_streams(fold, publishing, batches))

    together = rows.repartition("stream", "incarnation")
    in_order = together.sortWithinPartitions("stream", "incarnation", "position", "index", "offset")
    written = in_order.drop("index").mapInArrow(work, _WRITTEN)
    return [row.asDict() for row in written.collect()]
