"""The data pipeline: a bucket as a Spark table.

`spark = ursula.spark.session()`, then `spark.read.format("ursula")`; `register` does it for another session.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> "SparkSession":
    """A session in which everything is set: this interpreter for the workers too, and the format "ursula"."""
    from pyspark.sql import SparkSession

    from .java import check_java

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("ursula")
    for name, text in {"spark.ui.enabled": "false", **(settings or {})}.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make the format "ursula" known to a session."""
    from .source import UrsulaSource  # executors import this package for its other modules only

    spark.dataSource.register(UrsulaSource)
