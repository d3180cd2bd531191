"""The data pipeline: a bucket as a Spark table.

`spark = ursula.spark.session()`, then `spark.read.format("ursula")` or `ursula.spark.read(spark)`;
`register` does it for another session.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read", "register", "session"]

_registered: "WeakSet[SparkSession]" = WeakSet()


def session(
    master: str = "local[*]", settings: Mapping[str, str] | None = None, *, quiet: bool = False
) -> "SparkSession":
    """A session in which everything is set: this interpreter for the workers too, and the format "ursula".

    With `quiet`, Spark prints errors only; that is decided when the first session of a process starts.
    """
    from pyspark.sql import SparkSession

    from .java import check_java
    from .quiet import start_java

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", **(settings or {})}
    if quiet:
        start_java(master, settings)
    builder = SparkSession.builder.master(master).appName("ursula")
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make the format "ursula" known to a session, and send what it takes to executors on other machines."""
    from .shipping import ship
    from .source import UrsulaSource  # executors import this package for its other modules only

    ship(spark)
    spark.dataSource.register(UrsulaSource)
    _registered.add(spark)


def read(spark: "SparkSession", **options: str | bool | int | float) -> "DataFrame":
    """A bucket up to where it is now, with the options and the columns of the format "ursula".

    Spark reads the files of the store itself, which is faster, and leaves out what a query does not need.
    """
    from pyspark.sql.utils import to_str

    from .native import read_native

    if spark not in _registered:
        register(spark)
    return read_native(spark, {name: to_str(value) or "" for name, value in options.items()})
