"""Both clients, and names that no other test uses."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import httpx
import pytest
from tests.client.driven import driven
from tests.client.proxy import Proxy
from tests.client.reference import reference_server
from tests.conftest import StartServer
from tests.scrape import scrape
from tests.server import Server

from ursula.client import AsyncClient, Client, Patience

Connect = Callable[..., Client]

BUCKET = "clients"
QUICK = Patience(first_seconds=0.01, longest_seconds=0.05, give_up_seconds=60)

OPTIONS: dict[str, Any] = {"patience": QUICK, "live_patience": Patience(0.01, 0.05, None)}

_numbers = count()


@pytest.fixture(scope="module")
def quiet(start_server: StartServer) -> Server:
    """A server that only the test that uses it follows."""
    return start_server()


def wait_for_a_follower(server: Server) -> None:
    """Wait until a client follows a stream or a feed."""
    give_up_at = time.monotonic() + 60
    with httpx.Client(base_url=server.url, timeout=60) as api:
        while not scrape(api)["ursula_live_watchers"]:
            assert time.monotonic() < give_up_at, "nobody follows"
            time.sleep(0.01)


@pytest.fixture(scope="session")
def bucket(server: Server) -> str:
    """A bucket for the streams of these tests."""
    httpx.put(f"{server.url}/{BUCKET}", timeout=60).raise_for_status()
    return BUCKET


@pytest.fixture
def name(bucket: str) -> str:
    """The name of a stream that no other test uses."""
    return f"{bucket}/stream-{next(_numbers)}"


@pytest.fixture(params=["blocking", "awaiting"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one kind, which are closed after the test."""
    with ExitStack() as stack:
        if request.param == "blocking":

            def make(url: str, **options: Any) -> Client:
                return stack.enter_context(Client(url, **{**OPTIONS, **options}))
        else:
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)

            def make(url: str, **options: Any) -> Client:
                client = AsyncClient(url, **{**OPTIONS, **options})
                return stack.enter_context(driven(client, loop))

        yield make


@pytest.fixture
def client(connect: Connect, server: Server) -> Client:
    """A client of the shared server."""
    return connect(server.url)


@pytest.fixture(scope="session")
def reference() -> Iterator[str]:
    """The URL of a reference server, shared by all."""
    with reference_server() as url:
        yield url


@pytest.fixture(params=["ursula", "reference"])
def target_url(request: pytest.FixtureRequest) -> str:
    """Each server in turn: what is protocol works the same with both."""
    if request.param == "reference":
        return str(request.getfixturevalue("reference"))
    server: Server = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def protocol(connect: Connect, target_url: str) -> Client:
    """A client of each server in turn."""
    return connect(target_url)


@pytest.fixture
def path() -> str:
    """A path that every server takes, of a stream that no other test uses."""
    return f"/v1/stream/protocol-{next(_numbers)}"


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy before the shared server."""
    with Proxy(server) as running:
        yield running
