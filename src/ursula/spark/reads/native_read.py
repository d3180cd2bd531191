"""A bucket as a table whose files Spark itself reads, in union with the rows that are only in memory.

For the driver only. Spark's own Parquet reader skips row groups and columns that a query does not need, which
it cannot do for a format written in Python.
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

from ...cold.segment.schema import SEGMENT_SCHEMA
from ..executor_store import absolute
from ..options import S3Options
from .condition import Condition
from .glob_pattern import glob_pattern
from .options import VIEW, ReadOptions, parse_read_options
from .rows import schema_of, stored_name
from .selection import conditions_of
from .view import BucketView, bounded_view

_S3 = "s3://"
_EVERYTHING_OR_AN_ERROR = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "__globPaths__": "false",
}
"""A missing or damaged file is an error, whatever the session's settings are; and a path is not a pattern."""


def read_native(spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """A bucket up to its current position. All queries of the table see the same rows."""
    options = parse_read_options(given)
    view = bounded_view(options)
    paths = [span.path for span in view.spans if span.path is not None]
    if paths and _is_remote(view) and not _has_s3a(spark):
        warnings.warn(_s3a_hint(spark), stacklevel=3)
        up_to_here = {**given, "endingOffsets": str(view.position)}
        return spark.read.format("ursula").options(**up_to_here).load()
    parts = []
    if paths:
        parts.append(_files(spark, options, view, paths))
    if len(paths) < len(view.spans) or not paths:
        parts.append(_hot(spark, given, view))
    return reduce(DataFrame.union, parts)


def column_of(condition: Condition) -> Column:
    """A condition as Spark expresses it."""
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
    """How to reach S3, as settings of Hadoop."""
    named = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": s3.region,
        "fs.s3a.access.key": s3.access_key_id,
        "fs.s3a.secret.key": s3.secret_access_key,
        "fs.s3a.session.token": s3.session_token,
        "fs.s3a.path.style.access": None if s3.endpoint is None else "true",
    }
    return {name: text for name, text in named.items() if text is not None}


def _files(spark: SparkSession, options: ReadOptions, view: BucketView, paths: list[str]) -> DataFrame:
    schema = from_arrow_schema(SEGMENT_SCHEMA)
    if not isinstance(schema, StructType):
        raise TypeError(f"{schema!r} is not the schema of a table")
    reader = spark.read.schema(schema).options(**_EVERYTHING_OR_AN_ERROR, **s3a_settings(options.s3))
    base = _base(view.root or "")
    table = reader.parquet(*(f"{base}/{path}" for path in paths))
    wanted = reduce(Column.__and__, _wanted(options, view))
    # As text, since building a column with functions takes many calls to Java.
    return table.where(wanted).selectExpr(
        *(f"`{stored_name(name)}` AS `{name}`" for name in schema_of(options).names)
    )


def _wanted(options: ReadOptions, view: BucketView) -> list[Column]:
    """The conditions that wanted rows in the files meet. Positions are compared only if necessary."""
    conditions = list(conditions_of(options))
    files = [span for span in view.spans if span.path is not None]
    if any(file.last > view.position for file in files):
        conditions.append(Condition("position", "<=", view.position))
    if any(file.first < view.after for file in files):  # earlier rows may belong to another bucket
        conditions.append(Condition("position", ">", view.after))
    columns = [column_of(condition) for condition in conditions]
    if options.stream_glob is not None:
        columns.append(F.col("stream").rlike(rf"\A{glob_pattern(options.stream_glob)}\z"))
    return columns


def _hot(spark: SparkSession, given: Mapping[str, str], view: BucketView) -> DataFrame:
    return spark.read.format("ursula").options(**given).option(VIEW, view.hot_text()).load()


def _base(root: str) -> str:
    """The root as Spark spells it."""
    if root.startswith(_S3):
        return f"s3a://{root.removeprefix(_S3).rstrip('/')}"
    return f"file://{absolute(root)}"


def _is_remote(view: BucketView) -> bool:
    return (view.root or "").startswith(_S3)


def _has_s3a(spark: SparkSession) -> bool:
    try:
        _hadoop(spark).fs.FileSystem.getFileSystemClass("s3a", spark._jsc.hadoopConfiguration())
    except Py4JJavaError:
        return False
    return True


def _s3a_hint(spark: SparkSession) -> str:
    version = _hadoop(spark).util.VersionInfo.getVersion()
    return (
        "this session cannot read files in S3 itself, so the format 'ursula' reads the bucket, which is "
        "slower; for a native read, start the session with the setting "
        f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{version}"
    )


def _hadoop(spark: SparkSession) -> Any:
    """The packages of Hadoop in the session's Java."""
    java: Any = spark._jvm
    return java.org.apache.hadoop
