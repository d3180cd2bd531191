"""`export`: a bucket as Parquet files by date, and each time only what is new.

How far an export has come is in `_ursula/{bucket}.json` beside the files. New files are written where nobody
looks; then one document says which they are and where they go, and from there on they are moved, by this job
or the next one. So a job that is killed neither loses rows nor has them twice.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..cold.ulid import new_ulid
from ..spark.exporting import UNFINISHED, WRITTEN, write_days
from ..spark.options import OptionError, ReadOptions, S3Options, parse_read_options
from ..spark.planning import take_snapshot
from ..spark.store import StoreFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = 1
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
) -> Exported:
    """Write what happened in a bucket since the last export to a folder, or to s3://bucket/prefix.

    `options` are those of a read: `bucket`, `endpoint` or `path`, and how S3 is reached.
    """
    read = parse_read_options(options)
    if read.after is not None or read.until is not None:
        raise OptionError("an export goes on where the last one ended: leave out the offsets")
    store = StoreFiles(target, target_s3 or read.s3, UNFINISHED)
    place = _Place(store, read.bucket)
    if not dry_run:
        place.finish_moves()
    state = place.state()
    snapshot = take_snapshot(read, None)
    if state.cluster is not None:
        if state.cluster != snapshot.cluster:
            raise OptionError(f"{target} has an export of another cluster: choose another place")
        snapshot = take_snapshot(read, state.position)
    report = Exported(dry_run, read.bucket, state.position, snapshot.position)
    if dry_run or not snapshot.stretches:
        return report
    between = {"endingOffsets": str(snapshot.position)}
    if state.position >= 0:
        between["startingOffsets"] = str(state.position)
    rows = spark.read.format("ursula").options(**{**options, **between}).load()
    schema = _evolved(spark, rows, state.schema) if expand_json else None
    staging = f"_ursula/staging/{new_ulid()}"
    files = _write(rows, schema, target, target_s3 or read.s3, staging, read)
    moved = _State(snapshot.cluster, snapshot.position, schema.json() if schema else state.schema)
    place.commit(moved, [(file["staged"], file["path"]) for file in files])
    place.finish_moves()
    report.rows = sum(file["rows"] for file in files)
    report.bytes = sum(file["bytes"] for file in files)
    report.files = len(files)
    report.columns = schema.fieldNames() if schema is not None else None
    return report


@dataclass
class _State:
    cluster: str | None
    position: int
    schema: str | None


class _Place:
    """Where the exports of a bucket go."""

    def __init__(self, store: StoreFiles, bucket: str) -> None:
        self._store = store
        self._state = f"_ursula/{quote(bucket, safe='')}.json"
        self._pending = f"_ursula/{quote(bucket, safe='')}.pending.json"

    def state(self) -> _State:
        """How far the exports have come."""
        found = self._read(self._state)
        if found is None:
            return _State(None, -1, None)
        if found.pop("format") != FORMAT:
            raise OptionError(f"{self._store.root} has an export of a newer version of ursula")
        return _State(**found)

    def commit(self, state: _State, moves: list[tuple[str, str]]) -> None:
        """From here on the new files belong to the export."""
        self._write(self._pending, {"format": FORMAT, "state": vars(state), "moves": moves})

    def finish_moves(self) -> None:
        """Move the files of an export that was committed; nothing if there is none."""
        found = self._read(self._pending)
        if found is None:
            return
        for staged, path in found["moves"]:
            self._store.move(staged, path)
        self._write(self._state, {"format": FORMAT, **found["state"]})
        self._store.remove(self._pending)

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = json.loads(self._store.read(path))
        except FileNotFoundError:
            return None
        return document

    def _write(self, path: str, document: dict[str, Any]) -> None:
        self._store.put_bytes(json.dumps(document, indent=1).encode(), path)


def _write(
    rows: "DataFrame",
    schema: "StructType | None",
    target: str,
    s3: S3Options,
    staging: str,
    read: ReadOptions,
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = [f.col(name) for name in rows.columns if name not in _LEFT_OUT]
    if schema is not None:
        columns.append(f.from_json(f.col("value").cast("string"), schema).alias("json"))
    bucket = quote(read.bucket, safe="")

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
