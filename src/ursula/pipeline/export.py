"""`export`: writes a bucket to Parquet files by date, each time only the new rows.

The progress of the exports of a bucket is in `_ursula/exports/{bucket}/` next to the files. New files are
staged where no reader looks. Then one document records what they are and where they belong, and this job, or
the next one, moves them there. So a job that is killed neither loses rows nor duplicates them.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..engine.offline.verify import Progress
from ..spark.executor_store import ExecutorStore, absolute
from ..spark.options import OptionError, S3Options
from ..spark.reads.options import ReadOptions, parse_read_options
from ..spark.reads.view import BucketView, take_view
from ..spark.tasks.day_files import UNFINISHED, WRITTEN, write_days
from .job_lease import FOLDER, Document, JobLease, RunningJob, folder_of
from .leftovers import folder_of_run, remove_files, remove_unfinished
from .progress import no_step_progress, report_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NOT_EXPORTED = ("group", "bucket", "kind")


@dataclass
class Exported:
    """The result of a job; with `dry_run`, what it would do."""

    dry_run: bool
    bucket: str
    after: int
    """The position that earlier exports have reached; -1 if there were none."""
    position: int
    rows: int = 0
    files: int = 0
    bytes: int = 0
    columns: list[str] | None = None
    """The columns that JSON messages were expanded to."""


def export(
    spark: "SparkSession",
    target: str,
    options: "Mapping[str, str]",
    *,
    target_s3: S3Options | None = None,
    expand_json: bool = False,
    dry_run: bool = False,
    progress: Progress = no_step_progress,
) -> Exported:
    """Write the rows of a bucket since the last export to a folder, or to s3://bucket/prefix.

    `options` are those of a read: `bucket`, `endpoint` or `path`, and how to reach S3.
    """
    read = parse_read_options(options)
    if read.after is not None or read.until is not None:
        raise OptionError("an export continues where the last one ended: leave out the offsets")
    target = absolute(target)
    place = _ExportTarget(target, target_s3 or read.s3, read.bucket)
    if dry_run:
        before = place.lease.done()
        view = _new_rows(read, target, before)
        return Exported(dry_run, read.bucket, _position(before), view.position)
    with place.lease.acquire() as job:
        place.tidy(job)
        before = job.done
        view = _new_rows(read, target, before)
        report = Exported(dry_run, read.bucket, _position(before), view.position)
        if not view.spans:
            return report
        between = {"endingOffsets": str(view.position)}
        if before is not None:
            between["startingOffsets"] = str(before["position"])
        rows = spark.read.format("ursula").options(**{**options, **between}).load()
        schema_before = before["schema"] if before is not None else None
        schema = None
        if expand_json:
            with report_tasks(spark, ("looking for columns",), progress):
                schema = _evolved(spark, rows, schema_before)
        with report_tasks(spark, ("writing files",), progress):
            files = place.write(rows, schema, job.number)
        job.commit(
            {
                "cluster": view.cluster,
                "position": view.position,
                "schema": schema.json() if schema else schema_before,
                "moves": [(file["staged"], file["path"]) for file in files],
            }
        )
        place.tidy(job)
    report.rows = sum(file["rows"] for file in files)
    report.bytes = sum(file["bytes"] for file in files)
    report.files = len(files)
    report.columns = schema.fieldNames() if schema is not None else None
    return report


def _position(before: Document | None) -> int:
    return -1 if before is None else int(before["position"])


def _new_rows(read: ReadOptions, target: str, before: Document | None) -> BucketView:
    """The rows since the last export."""
    view = take_view(read, None)
    if before is None:
        return view
    if before["cluster"] != view.cluster:
        raise OptionError(f"{target} has an export of another cluster: choose another place")
    return take_view(read, before["position"])


class _ExportTarget:
    """The place to which a bucket is exported."""

    def __init__(self, target: str, s3: S3Options, bucket: str) -> None:
        self._target = target
        self._s3 = s3
        self._bucket = bucket
        self._store = ExecutorStore(target, s3, UNFINISHED)
        self._staging = f"{FOLDER}/staging/{folder_of(bucket)}"
        self.lease = JobLease(
            target, s3, f"exports/{folder_of(bucket)}", f"export of the bucket {bucket!r} to {target}"
        )

    def tidy(self, job: RunningJob) -> None:
        """Move the files of the last export to where they belong, and remove files that no export has."""
        staged_files = set(self._store.names(self._staging))
        for staged, path in job.done["moves"] if job.done is not None else ():
            if staged in staged_files:
                self._store.move(staged, path)
                self._store.remove_empty(staged.rpartition("/")[0])
        remove_files(self._store, self._staging, job.number, ())
        remove_unfinished(self._store, UNFINISHED)

    def write(self, rows: "DataFrame", schema: "StructType | None", number: int) -> list[dict[str, Any]]:
        """Write rows to staged files; returns a description of each."""
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        columns = [f.col(name) for name in rows.columns if name not in _NOT_EXPORTED]
        if schema is not None:
            columns.append(f.from_json(f.col("value").cast("string"), schema).alias("json"))
        target, s3, bucket = self._target, self._s3, quote(self._bucket, safe="")
        staging = folder_of_run(self._staging, number)

        def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return write_days(target, s3, staging, bucket, batches)

        written = rows.select(*columns).mapInArrow(write, from_arrow_schema(WRITTEN))
        return [row.asDict() for row in written.collect()]


def _evolved(spark: "SparkSession", rows: "DataFrame", before: str | None) -> "StructType":
    """The columns of JSON messages: the known ones unchanged, then new ones."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    known = StructType.fromJson(json.loads(before)) if before else StructType()
    texts = rows.where(f.col("content_type").startswith("application/json")).select(
        f.col("value").cast("string")
    )
    found = spark.read.json(texts.rdd.map(lambda row: row[0])).schema
    return merge_schemas(known, found)


def merge_schemas(known: "StructType", found: "StructType") -> "StructType":
    """The fields of the first, then those that only the second has; structs are merged field by field."""
    from pyspark.sql.types import StructField, StructType

    fields = {field.name: field for field in known.fields}
    for field in found.fields:
        if field.name == "_corrupt_record":
            continue
        there = fields.get(field.name)
        if there is None:
            fields[field.name] = field
        elif isinstance(there.dataType, StructType) and isinstance(field.dataType, StructType):
            fields[field.name] = StructField(field.name, merge_schemas(there.dataType, field.dataType))
    return StructType(list(fields.values()))
