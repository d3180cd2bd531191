"""A session of Spark, and a bucket that lies in the store and in memory."""

import os
from collections.abc import Callable, Iterator

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import JSON, TEXT, make, post, producer
from tests.server import Server
from typer.testing import CliRunner, Result

import ursula.spark
from ursula.cli import app

MASTER = "local[2]"
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for minutes: it does not pay to optimize its code."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED)

Pipeline = Callable[..., Result]


def stop_session() -> None:
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture(scope="session")
def end_of_sessions() -> Iterator[None]:
    """Nothing is left running at the end."""
    yield
    stop_session()


@pytest.fixture(scope="module")
def spark(end_of_sessions: None) -> SparkSession:
    """The session of all modules in this process, started again if one of them has stopped it."""
    return ursula.spark.session(MASTER, SETTINGS)


@pytest.fixture(scope="module")
def no_spark() -> None:
    """For a module with sessions of its own: there is one in a process at a time."""
    stop_session()


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession) -> Pipeline:
    """`ursula pipeline ...` in this process and its session."""
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})

    def run(*arguments: str) -> Result:
        name, *more = arguments
        return runner.invoke(app, ["pipeline", name, "--master", MASTER, *more], catch_exceptions=False)

    return run


@pytest.fixture
def bucket(server: Server, api: httpx.Client, path: str) -> str:
    """Three streams: one in the store, one in memory only, one in both, beside another bucket."""
    name = path.rpartition("/")[2]
    for one in (name, f"{name}-other"):
        api.put(f"/{one}").raise_for_status()
        make(api, f"/{one}/cold", JSON, b'[{"n":0},{"n":1}]')
        make(api, f"/{one}/both", TEXT)
        post(api, f"/{one}/both", b"first", TEXT)
    api.post("/cluster/flush").raise_for_status()
    for one in (name, f"{name}-other"):
        make(api, f"/{one}/hot", JSON, b'["now"]')
        post(api, f"/{one}/both", b"second", TEXT | producer(0), status=200)
        assert api.put(f"/{one}/hot/attrs", json={"title": "x"}).status_code == 204
    return name
