"""A shell with a server, and names that no other test uses."""

from collections.abc import Iterator
from itertools import count

import pytest
from tests.client.proxy import Proxy
from tests.server import Server
from tests.terminal.shell import Shell

from ursula.client import Client

_numbers = count()


@pytest.fixture
def shell(server: Server) -> Shell:
    """A shell whose commands talk to the shared server."""
    return Shell(server.url)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client that sees the same streams as the commands."""
    with Client(server.url) as running:
        yield running


@pytest.fixture
def bucket(client: Client) -> str:
    """A bucket that no other test uses."""
    name = f"terminal-{next(_numbers)}"
    client.bucket(name).create()
    return name


@pytest.fixture
def name(bucket: str) -> str:
    """The name of a stream that no other test uses, in a bucket that exists."""
    return f"{bucket}/stream"


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of the shared server."""
    with Proxy(server) as running:
        yield running
