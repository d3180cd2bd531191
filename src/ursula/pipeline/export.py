"""`export`: a bucket as Parquet files by date, and each time only what is new.

How far an export has come is in `_ursula/exports/{bucket}/` beside the files. New files are written where
nobody looks; then one document says which they are and where they go, and from there on they are moved, by
this job or the next one. So a job that is killed neither loses rows nor has them twice.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..engine.offline.verify import Progress
from ..spark.exporting import UNFINISHED, WRITTEN, write_days
from ..spark.options import OptionError, ReadOptions, S3Options, parse_read_options
from ..spark.planning import Snapshot, take_snapshot
from ..spark.store import StoreFiles, absolute
from .ledger import FOLDER, Document, Ledger, Run, folder_of
from .leftovers import folder_of_run, remove_files, remove_unfinished
from .progress import tasks_told, untold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LEFT_OUT = ("group", "bucket", "kind")


@dataclass
class Exported:
    """What a job did; with `dry_run`, what it would do."""

    dry_run: bool
    bucket: str
    after: int
    """The position that was reached before; -1 if there was none."""
    position: int
    rows: int = 0
    files: int = 0
    bytes: int = 0
    columns: list[str] | None = None
    """The columns that messages were expanded to."""


def export(
    spark: "SparkSession",
    target: str,
    options: "Mapping[str, str]",
    *,
    target_s3: S3Options | None = None,
    expand_json: bool = False,
    dry_run: bool = False,
    progress: Progress = untold,
) -> Exported:
    """Write what happened in a bucket since the last export to a folder, or to s3://bucket/prefix.

    `options` are those of a read: `bucket`, `endpoint` or `path`, and how S3 is reached.
    """
    read = parse_read_options(options)
    if read.after is not None or read.until is not None:
        raise OptionError("an export goes on where the last one ended: leave out the offsets")
    target = absolute(target)
    place = _Place(target, target_s3 or read.s3, read.bucket)
    if dry_run:
        before = place.ledger.done()
        snapshot = _snapshot(read, target, before)
        return Exported(dry_run, read.bucket, _position(before), snapshot.position)
    with place.ledger.run() as run:
        place.tidy(run)
        before = run.done
        snapshot = _snapshot(read, target, before)
        report = Exported(dry_run, read.bucket, _position(before), snapshot.position)
        if not snapshot.stretches:
            return report
        between = {"endingOffsets": str(snapshot.position)}
        if before is not None:
            between["startingOffsets"] = str(before["position"])
        rows = spark.read.format("ursula").options(**{**options, **between}).load()
        schema_before = before["schema"] if before is not None else None
        schema = None
        if expand_json:
            with tasks_told(spark, ("looking for columns",), progress):
                schema = _evolved(spark, rows, schema_before)
        with tasks_told(spark, ("writing files",), progress):
            files = place.write(rows, schema, run.number)
        run.commit(
            {
                "cluster": snapshot.cluster,
                "position": snapshot.position,
                "schema": schema.json() if schema else schema_before,
                "moves": [(file["staged"], file["path"]) for file in files],
            }
        )
        place.tidy(run)
    report.rows = sum(file["rows"] for file in files)
    report.bytes = sum(file["bytes"] for file in files)
    report.files = len(files)
    report.columns = schema.fieldNames() if schema is not None else None
    return report


def _position(before: Document | None) -> int:
    return -1 if before is None else int(before["position"])


def _snapshot(read: ReadOptions, target: str, before: Document | None) -> Snapshot:
    """What is new since the last export."""
    snapshot = take_snapshot(read, None)
    if before is None:
        return snapshot
    if before["cluster"] != snapshot.cluster:
        raise OptionError(f"{target} has an export of another cluster: choose another place")
    return take_snapshot(read, before["position"])


class _Place:
    """Where the exports of a bucket go."""

    def __init__(self, target: str, s3: S3Options, bucket: str) -> None:
        self._target = target
        self._s3 = s3
        self._bucket = bucket
        self._store = StoreFiles(target, s3, UNFINISHED)
        self._staging = f"{FOLDER}/staging/{folder_of(bucket)}"
        self.ledger = Ledger(
            target, s3, f"exports/{folder_of(bucket)}", f"export of the bucket {bucket!r} to {target}"
        )

    def tidy(self, run: Run) -> None:
        """Move the files of the last export to their places, and remove those of none."""
        staged_files = set(self._store.names(self._staging))
        for staged, path in run.done["moves"] if run.done is not None else ():
            if staged in staged_files:
                self._store.move(staged, path)
                self._store.remove_empty(staged.rpartition("/")[0])
        remove_files(self._store, self._staging, run.number, ())
        remove_unfinished(self._store, UNFINISHED)

    def write(self, rows: "DataFrame", schema: "StructType | None", number: int) -> list[dict[str, Any]]:
        """Write rows to files that nobody reads yet; says which they are."""
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = [f.col(name) for name in rows.columns if name not in _LEFT_OUT]
        if schema is not None:
            columns.append(f.from_json(f.col("value").cast("string"), schema).alias("json"))
        target, s3, bucket = self._target, self._s3, quote(self._bucket, safe="")
        staging = folder_of_run(self._staging, number)

        def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return write_days(target, s3, staging, bucket, batches)

        written = rows.select(*columns).mapInArrow(write, from_arrow_schema(WRITTEN))
        return [row.asDict() for row in written.collect()]


def _evolved(spark: "SparkSession", rows: "DataFrame", before: str | None) -> "StructType":
    """The columns that messages have: those of before as they are, and new ones behind them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    known = StructType.fromJson(json.loads(before)) if before else StructType()
    texts = rows.where(f.col("content_type").startswith("application/json")).select(
        f.col("value").cast("string")
    )
    found = spark.read.json(texts.rdd.map(lambda row: row[0])).schema
    return merged(known, found)


def merged(known: "StructType", found: "StructType") -> "StructType":
    """The fields of one, and those of another that it does not have; in structs, field by field."""
    from pyspark.sql.types import StructField, StructType

    fields = {field.name: field for field in known.fields}
    for field in found.fields:
        if field.name == "_corrupt_record":
            continue
        there = fields.get(field.name)
        if there is None:
            fields[field.name] = field
        elif isinstance(there.dataType, StructType) and isinstance(field.dataType, StructType):
            fields[field.name] = StructField(field.name, merged(there.dataType, field.dataType))
    return StructType(list(fields.values()))
