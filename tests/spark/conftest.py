"""A session of Spark, and a bucket that lies in the store and in memory."""

from collections.abc import Iterator

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.http.wire import JSON, TEXT, make, post, producer
from tests.server import Server

import ursula.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = ursula.spark.session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


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
