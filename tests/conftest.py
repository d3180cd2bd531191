"""Servers and clients for tests over the wire; which tests come first; what a run says at its end.

`make test` runs files side by side in two processes, each with its own fixtures for the session.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
from tests.cluster.spread_server import any_server, is_spread
from tests.faults.notes import NOTES, note
from tests.server import Server

StartServer = Callable[..., Server]

LONG_FILES = (
    "faults/cluster/test_cluster.py",
    "conformance/test_conformance.py",
    "faults/test_large_bodies.py",
    "pipeline/test_driver_killed.py",
    "cluster/test_membership.py",
    "cluster/test_restored.py",
    "spark/test_cluster.py",
    "pipeline/test_outages.py",
    "pipeline/test_quiet.py",
    "faults/test_s3_outage.py",
    "cold/test_restore.py",
    "spark/test_examples.py",
    "docs/test_examples.py",
    "http/test_snapshots.py",
    "spark/test_package_zip.py",
    "http/test_later.py",
    "spark/test_streaming.py",
    "faults/test_kill_bucket.py",
    "spark/test_batch.py",
    "http/test_bootstrap.py",
    "spark/test_writes.py",
    "faults/test_kill.py",
    "pipeline/test_backup.py",
    "cluster/test_interrupted.py",
    "faults/test_cold_disk.py",
    "spark/test_native_read.py",
    "http/test_connections.py",
    "pipeline/test_materialize.py",
    "faults/test_disk.py",
    "faults/test_flipped_bits.py",
    "pipeline/test_export.py",
    "faults/test_stop.py",
    "pipeline/test_compact.py",
    "interop/test_browser.py",
    "pipeline/test_leftovers.py",
    "spark/test_s3.py",
    "engine/test_flush.py",
    "pipeline/test_verify.py",
    "http/test_start.py",
    "pipeline/test_usage.py",
    "pipeline/test_command_session.py",
    "engine/test_merging.py",
    "model/test_flush_model.py",
    "pipeline/test_progress.py",
    "faults/test_kill_restore.py",
    "model/test_against_oracle.py",
    "faults/test_kill_tidying.py",
    "docs/test_troubleshooting.py",
    "http/test_hot_limit.py",
    "http/test_fuzz.py",
)
"""Those of more than a quarter of a minute come first, so that no process is left alone with one at the end;
those that wait among those that work, and those of Spark, which keeps two cores busy by itself, among others.
Those that stop the session of Spark come before those that share it."""

_numbers = count()

hypothesis.settings.register_profile("ursula", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("ursula")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job: our children would too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; and what needs a single server is left out where there are three nodes."""
    if is_spread():
        for item in items:
            for marker in item.iter_markers("one_node"):
                item.add_marker(pytest.mark.skip(reason=f"one node: {marker.args[0]}"))
    root = Path(__file__).parent
    places = {root / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands over what it could not do here."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = NOTES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what such a process hands over; one that crashed has nothing."""
    for text in getattr(node, "workeroutput", {}).get("notes", []):
        note(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the notes, if there are any."""
    if NOTES:
        terminalreporter.section("fault tests on this machine")
        for text in NOTES:
            terminalreporter.write_line(text)


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked with `anyio` run on asyncio, as the server does, each on a loop of its own."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A durable server with default settings, shared by everyone who does not stop it."""
    with any_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running
        assert running.complaints() == []
        assert running.stop() == 0


@pytest.fixture(scope="session")
def api(server: Server) -> Iterator[httpx.Client]:
    """A client of the shared server."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def timed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose clock tests move, shared by everyone whose streams may grow old meanwhile."""
    with any_server(tmp_path_factory.mktemp("timed") / "data", movable_clock=True) as running:
        yield running
        assert running.complaints() == []
        assert running.stop() == 0


@pytest.fixture(scope="session")
def timed_api(timed_server: Server) -> Iterator[httpx.Client]:
    """A client of the server whose clock tests move."""
    with httpx.Client(base_url=timed_server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers with other settings; they live until the end of the module."""
    with ExitStack() as stack:

        def start(
            *flags: str, data_dir: Path | None = None, movable_clock: bool = False, **settings: str
        ) -> Server:
            folder = data_dir or tmp_path_factory.mktemp("server") / "data"
            named = {name.replace("__", "."): value for name, value in settings.items()}
            server = any_server(folder, *flags, settings=named, movable_clock=movable_clock)
            return stack.enter_context(server)

        yield start


@pytest.fixture
def path() -> str:
    """The path of a stream that no other test uses."""
    return f"/v1/stream/test-{next(_numbers)}"
