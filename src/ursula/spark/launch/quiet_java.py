"""Starts Spark's Java so that it prints only errors.

Java prints its first lines before a session can set a log level, so they have to be suppressed at its start.
"""

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

LOG4J = Path(__file__).with_name("log4j2.properties")
DROPPED = "WARNING: Using incubator modules"
"""Java itself prints this, and no switch turns it off: Spark asks for such a module."""


def start_quiet_java(master: str, settings: Mapping[str, str]) -> None:
    """Start Java for the sessions of this process, unless it is already running or Spark started us."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    conf.set("spark.driver.defaultJavaOptions", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}")
    ours, theirs = os.pipe()
    threading.Thread(target=_forward, args=(ours,), daemon=True).start()
    try:
        gateway = launch_gateway(conf, {"stderr": theirs})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)
    finally:
        os.close(theirs)


def _forward(source: int) -> None:
    """Print the output of Java, line by line, until it ends."""
    with open(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(DROPPED):
                print(line, end="", file=sys.stderr, flush=True)
