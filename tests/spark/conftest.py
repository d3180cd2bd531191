"""A Spark session, a bucket that is partly in the store and partly in memory, and a server with S3."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cold.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, Seaweed
from tests.http.wire import JSON, TEXT, make, post, producer
from tests.server import Server

import ursula.spark
from ursula.cold.objects.store import UNFINISHED
from ursula.spark.options import S3Options

MASTER = "local[2]"
SETTINGS = {"spark.sql.shuffle.partitions": "2"}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java process that runs for minutes only: optimizing its code does not pay."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED)


def stop_session() -> None:
    """Stop the session of this process: there can be only one, and the next one has other settings."""
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def copied_store(root: str, folder: Path) -> Path:
    """A copy of a store to damage: a running server's merger would notice damage to the original."""
    return Path(shutil.copytree(root, folder, ignore=shutil.ignore_patterns(UNFINISHED)))


@pytest.fixture(scope="session")
def end_of_sessions() -> Iterator[None]:
    """Stops the session at the end."""
    yield
    stop_session()


@pytest.fixture(scope="module")
def spark(end_of_sessions: None) -> SparkSession:
    """The session of all modules in this process, started again if one of them has stopped it."""
    return ursula.spark.session(MASTER, SETTINGS)


@pytest.fixture(scope="module")
def no_spark() -> None:
    """For a module with sessions of its own."""
    stop_session()


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """S3 with a bucket."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        running.bucket("tables")
        yield running


@pytest.fixture(scope="module")
def s3(seaweed: Seaweed) -> S3Options:
    """How to reach it."""
    return S3Options(seaweed.endpoint, "us-east-1", ACCESS_KEY_ID, SECRET_ACCESS_KEY)


@pytest.fixture(scope="module")
def server_in_s3(seaweed: Seaweed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose store is s3://tables/of/ours."""
    settings = {
        "cold.backend": "s3",
        "cold.root": "of/ours",
        "cold.s3_bucket": "tables",
        "cold.s3_endpoint": seaweed.endpoint,
        "cold.s3_access_key_id": ACCESS_KEY_ID,
        "cold.s3_secret_access_key": SECRET_ACCESS_KEY,
    }
    with Server(tmp_path_factory.mktemp("server") / "data", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def api_in_s3(server_in_s3: Server) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=server_in_s3.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def read_in_s3(server_in_s3: Server, s3: S3Options) -> dict[str, str]:
    """The options of a read from it, without the bucket."""
    return {
        "endpoint": server_in_s3.url,
        "s3Endpoint": s3.endpoint or "",
        "s3Region": s3.region or "",
        "s3AccessKeyId": ACCESS_KEY_ID,
        "s3SecretAccessKey": SECRET_ACCESS_KEY,
    }


@pytest.fixture
def bucket(server: Server, api: httpx.Client, path: str) -> str:
    """Three streams: one in the store, one in memory, one in both. There is another bucket beside it."""
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
