"""Spark authenticates every request to a server, on the driver and on executors."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession
from tests.client.proxy import Proxy
from tests.conftest import StartServer
from tests.pipeline.conftest import Pipeline
from tests.server import Server

from ursula.client import Client
from ursula.spark.http_client import ServerClient, ServerRefused

AUTH = "Bearer abc"
FOLD = "tests.pipeline.folds:total"


@pytest.fixture(scope="module")
def behind(start_server: StartServer) -> Server:
    """A server with a bucket of two segments, which does not flush by itself."""
    server = start_server(cold__flush_interval="24h")
    with Client(server.url) as client:
        client.bucket("orders").create()
        for number in range(2):
            client.stream(f"orders/{number}").create("application/json", body='{"n": 1}')
            client.flush()
    return server


@pytest.fixture
def proxy(behind: Server) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Proxy(behind) as running:
        yield running


def sent(proxy: Proxy) -> set[str | None]:
    """The Authorization headers of all requests."""
    assert proxy.seen
    return {headers.get("authorization") for headers in proxy.seen}


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "orders", "FOLDER"),
        ("materialize", "orders", FOLD, "FOLDER", "--publish"),
        ("usage",),
        ("compact",),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_job_sends_the_header_with_every_request(
    pipeline: Pipeline, proxy: Proxy, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    given = [str(tmp_path) if word == "FOLDER" else word for word in arguments]
    done = pipeline(*given, "--url", proxy.url, "--auth", AUTH)
    assert done.exit_code == 0, done.output
    assert sent(proxy) == {AUTH}


def test_a_read_of_cold_and_hot_rows_sends_the_header_with_every_request(
    spark: SparkSession, behind: Server, proxy: Proxy
) -> None:
    with Client(behind.url) as client:
        client.flush()  # a job that merged segments has requested a flush: the row must come after it
        client.stream("orders/0").append('{"n": 2}')
    options = {"endpoint": proxy.url, "auth": AUTH, "bucket": "orders"}
    assert spark.read.format("ursula").options(**options).load().count() == 3
    assert sent(proxy) == {AUTH}
    assert any("offset=" in target for target in proxy.targets), "executors read hot rows from the server"


def test_a_write_sends_the_header_with_every_request(spark: SparkSession, proxy: Proxy) -> None:
    options = {"endpoint": proxy.url, "auth": AUTH, "bucket": "orders"}
    rows = spark.createDataFrame([("written", bytearray(b"x"))], "stream string, value binary")
    rows.write.format("ursula").options(**options).mode("append").save()
    assert sent(proxy) == {AUTH}


def test_a_redirected_request_has_no_header() -> None:
    seen: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["authorization"])
            if self.path != "/moved":
                self.send_response(307 if self.command == "POST" else 302)
                self.send_header("Location", "/moved")
            else:
                self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            """It logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServerRefused):
            ServerClient(f"http://127.0.0.1:{server.server_port}", 0, AUTH).plan("orders", None)
        with pytest.raises(ServerRefused):
            ServerClient(f"http://127.0.0.1:{server.server_port}", 0, AUTH).flush()
        server.shutdown()
    assert seen == [AUTH, None] * 2
