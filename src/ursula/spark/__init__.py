"""A bucket as a Spark table.

`spark = ursula.spark.session()`, then `spark.read.format("ursula")` or `ursula.spark.read(spark)`.
`register` adds the format to a session that already exists.

Executors import the modules of this package too, and may have nothing but pyarrow and the libraries that come
with Spark. So here, and in everything that these modules import, other libraries are imported inside
functions that only the driver calls.
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
    """A session that is ready to use: its workers run this interpreter, and it knows the format "ursula".

    With `quiet`, Spark prints only errors. The first session of a process decides that for all of them.
    """
    from pyspark.sql import SparkSession

    from .launch.java import check_java
    from .launch.quiet_java import start_quiet_java

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", **(settings or {})}
    if quiet:
        start_quiet_java(master, settings)
    builder = SparkSession.builder.master(master).appName("ursula")
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make the format "ursula" known to a session, and send the package to executors on other machines."""
    from .launch.package_zip import send_package
    from .source import UrsulaSource  # it needs pyspark, and this package must be importable without it

    send_package(spark)
    spark.dataSource.register(UrsulaSource)
    _registered.add(spark)


def read(spark: "SparkSession", **options: str | bool | int | float) -> "DataFrame":
    """A bucket up to its current position, with the options and the columns of the format "ursula".

    Spark itself reads the files of the store, which is faster, and skips data that a query does not need.
    """
    from pyspark.sql.utils import to_str

    from .reads.native_read import read_native

    if spark not in _registered:
        register(spark)
    return read_native(spark, {name: to_str(value) or "" for name, value in options.items()})
