"""Servers and clients for every test that goes over the wire."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import httpx
import pytest
from tests.server import Server

StartServer = Callable[..., Server]

_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A durable server with default settings, shared by everyone who does not stop it."""
    with Server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running
        assert running.complaints() == []
        assert running.stop() == 0


@pytest.fixture(scope="session")
def api(server: Server) -> Iterator[httpx.Client]:
    """A client of the shared server."""
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers with other settings; they live until the end of the module."""
    with ExitStack() as stack:

        def start(*flags: str, data_dir: Path | None = None, **settings: str) -> Server:
            folder = data_dir or tmp_path_factory.mktemp("server") / "data"
            named = {name.replace("__", "."): value for name, value in settings.items()}
            return stack.enter_context(Server(folder, *flags, settings=named))

        yield start


@pytest.fixture
def path() -> str:
    """The path of a stream that no other test uses."""
    return f"/v1/stream/test-{next(_numbers)}"
