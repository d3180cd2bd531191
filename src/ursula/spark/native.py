"""A bucket as a table that Spark reads itself: the files of a snapshot, united with what only memory has.

On the driver only. Spark leaves out row groups and columns by its own means, which it cannot do in a format
that is written in Python.
"""

import warnings
from collections.abc import Mapping
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..cold.segment.schema import SEGMENT_SCHEMA
from .conditions import Condition
from .options import SNAPSHOT, ReadOptions, S3Options, parse_read_options
from .planning import Snapshot, bounded_snapshot
from .rows import schema_of, stored_name
from .selection import conditions_of, glob_pattern
from .store import absolute

_S3 = "s3://"
_EVERYTHING_OR_AN_ERROR = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "__globPaths__": "false",
}
"""A file that is gone or damaged is told, whatever the session says; and a path is no pattern."""


def read_native(spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """A bucket up to where it is now. All queries of the table have the same rows."""
    options = parse_read_options(given)
    snapshot = bounded_snapshot(options)
    paths = [stretch.path for stretch in snapshot.stretches if stretch.path is not None]
    if paths and _is_far(snapshot) and not _has_s3a(spark):
        warnings.warn(_how_to_have_s3a(spark), stacklevel=3)
        up_to_here = {**given, "endingOffsets": str(snapshot.position)}
        return spark.read.format("ursula").options(**up_to_here).load()
    parts = []
    if paths:
        parts.append(_files(spark, options, snapshot, paths))
    if len(paths) < len(snapshot.stretches) or not paths:
        parts.append(_hot(spark, given, snapshot))
    return reduce(DataFrame.union, parts)


def column_of(condition: Condition) -> Column:
    """A condition as Spark has it."""
    column = F.col(condition.column)
    if condition.operator == "in":
        return column.isin(list(condition.value))
    value = F.lit(condition.value)
    if condition.column == "appended_at":
        value = F.timestamp_micros(value)
    match condition.operator:
        case "=":
            return column == value
        case ">":
            return column > value
        case ">=":
            return column >= value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case "starts":
            return column.startswith(value)


def s3a_settings(s3: S3Options) -> dict[str, str]:
    """The options of a read that say how to reach S3, by their names in Hadoop."""
    named = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.access.key": s3.access_key_id,
        "fs.s3a.secret.key": s3.secret_access_key,
        "fs.s3a.session.token": s3.session_token,
        "fs.s3a.path.style.access": None if s3.endpoint is None else "true",
    }
    return {name: text for name, text in named.items() if text is not None}


def _files(spark: SparkSession, options: ReadOptions, snapshot: Snapshot, paths: list[str]) -> DataFrame:
    schema = from_arrow_schema(SEGMENT_SCHEMA)
    if not isinstance(schema, StructType):
        raise TypeError(f"{schema!r} is not the schema of a table")
    reader = spark.read.schema(schema).options(**_EVERYTHING_OR_AN_ERROR, **s3a_settings(options.s3))
    base = _base(snapshot.root or "")
    table = reader.parquet(*(f"{base}/{path}" for path in paths))
    wanted = reduce(Column.__and__, _wanted(options, snapshot))
    # As text: each column made by a function here is many calls of Java.
    return table.where(wanted).selectExpr(
        *(f"`{stored_name(name)}` AS `{name}`" for name in schema_of(options).names)
    )


def _wanted(options: ReadOptions, snapshot: Snapshot) -> list[Column]:
    """What tells the rows from others in the files. Positions are not looked at where all of them count."""
    conditions = list(conditions_of(options))
    files = [stretch for stretch in snapshot.stretches if stretch.path is not None]
    if any(file.last > snapshot.position for file in files):
        conditions.append(Condition("position", "<=", snapshot.position))
    if any(file.first < snapshot.after for file in files):  # what lies before may be of another bucket
        conditions.append(Condition("position", ">", snapshot.after))
    columns = [column_of(condition) for condition in conditions]
    if options.stream_glob is not None:
        columns.append(F.col("stream").rlike(rf"\A{glob_pattern(options.stream_glob)}\z"))
    return columns


def _hot(spark: SparkSession, given: Mapping[str, str], snapshot: Snapshot) -> DataFrame:
    return spark.read.format("ursula").options(**given).option(SNAPSHOT, snapshot.hot_text()).load()


def _base(root: str) -> str:
    """The root as Spark names it."""
    if root.startswith(_S3):
        return f"s3a://{root.removeprefix(_S3).rstrip('/')}"
    return f"file://{absolute(root)}"


def _is_far(snapshot: Snapshot) -> bool:
    return (snapshot.root or "").startswith(_S3)


def _has_s3a(spark: SparkSession) -> bool:
    try:
        _hadoop(spark).fs.FileSystem.getFileSystemClass("s3a", spark._jsc.hadoopConfiguration())
    except Py4JJavaError:
        return False
    return True


def _how_to_have_s3a(spark: SparkSession) -> str:
    version = _hadoop(spark).util.VersionInfo.getVersion()
    return (
        "this session cannot read files in S3 itself, so the bucket is read by the format 'ursula', "
        "which takes longer; for a native read, begin the session with the setting "
        f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{version}"
    )


def _hadoop(spark: SparkSession) -> Any:
    """The packages of Hadoop in the session's Java."""
    java: Any = spark._jvm
    return java.org.apache.hadoop
