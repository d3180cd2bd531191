"""The servers that are compared: how each is started, and where its streams are."""

import http.client
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from . import rust
from .failure import Failed
from .process import Process

HERE = Path(__file__).parent
SCRATCH = HERE / "results" / "tmp"
"""On the disk that the project is on: a sync to a memory file system would cost nothing."""

START_SECONDS = 60.0
POLL_SECONDS = 0.002

ELECTRIC_PROGRAM = "durable-streams-server"
BEFORE_VARIABLE = "URSULA_BENCH_BEFORE"

_OURS_READY = "/readyz/local"


@dataclass(frozen=True)
class Kind:
    """A kind of server."""

    name: str
    label: str
    command: Callable[[int, Path], Sequence[str]]
    ready: str = "/"
    """A path that answers something else than 503 once the server is ready."""
    prefix: str = "/v1/stream/"
    bucket: str | None = None
    """To be created before streams can be."""
    api_style: str = "durable"
    missing: Callable[[], str | None] = lambda: None
    tries: int = 1
    """How often it is asked for new streams before it has failed: one may answer 500 just after its start."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of ours, where they are not the defaults, named as in the configuration file."""

    def with_settings(self, **settings: str) -> "Kind":
        """The same server set up otherwise: `cold__cache_bytes="0"`."""
        named = {name.replace("__", "."): value for name, value in settings.items()}
        return replace(self, settings={**self.settings, **named})


@dataclass(frozen=True)
class Server:
    """A running server."""

    kind: Kind
    port: int
    process: Process
    ready_seconds: float
    """From the start of the process until it was ready."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def path(self, stream: str) -> str:
        """The path of a stream."""
        return self.kind.prefix + stream


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder on the real disk, removed afterwards."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(kind: Kind, folder: Path | None = None, start_seconds: float = START_SECONDS) -> Iterator[Server]:
    """A new server, in an empty folder unless one is given, until the block ends."""
    with scratch_folder() as own:
        port = _free_port()
        begun = time.perf_counter()
        process = start_process(kind, port, folder or own / "data", own / "output")
        try:
            await_ready(kind, port, process, start_seconds)
            server = Server(kind, port, process, time.perf_counter() - begun)
            create_bucket(server)
            yield server
        finally:
            process.stop()


def start_process(kind: Kind, port: int, data: Path, output: Path) -> Process:
    """Start a server without waiting until it is ready."""
    return Process(kind.command(port, data), output, _environment(kind))


def _environment(kind: Kind) -> dict[str, str]:
    """Ours, without settings that would make a server another one, and with those that shall."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("URSULA_", "PYTHON"))}
    given = {f"URSULA_{name.upper().replace('.', '__')}": value for name, value in kind.settings.items()}
    return kept | given


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def await_ready(kind: Kind, port: int, process: Process, start_seconds: float) -> None:
    """Wait until a server is ready, or raise Failed."""
    deadline = time.perf_counter() + start_seconds
    while time.perf_counter() < deadline:
        if not process.alive:
            raise Failed(f"{kind.label} did not start: {process.last_words()}")
        try:
            if _status(port, "GET", kind.ready) != 503:
                return
        except OSError:
            pass
        time.sleep(POLL_SECONDS)
    raise Failed(f"{kind.label} was not ready within {start_seconds:.0f} s: {process.last_words()}")


def create_bucket(server: Server) -> None:
    """Create the bucket that the streams of this kind of server are in, if it has one."""
    if server.kind.bucket is None:
        return
    status = _status(server.port, "PUT", f"/{server.kind.bucket}")
    if status not in (200, 201):
        raise Failed(f"{server.kind.label} answered {status} to the creation of a bucket")


def _status(port: int, method: str, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def _ours(port: int, folder: Path) -> Sequence[str]:
    listen = ("--listen", f"127.0.0.1:{port}", "--data-dir", str(folder))
    return (sys.executable, "-m", "ursula", "serve", "--config", os.devnull, *listen)


def _bare(port: int, folder: Path) -> Sequence[str]:
    return (sys.executable, "-m", "bench.bare", str(port))


def _reference_memory(port: int, folder: Path) -> Sequence[str]:
    return ("node", str(HERE / "reference.mjs"), str(port))


def _reference_file(port: int, folder: Path) -> Sequence[str]:
    return ("node", str(HERE / "reference.mjs"), str(port), str(folder))


def _rust(port: int, folder: Path) -> Sequence[str]:
    return rust.command([port], 1, folder)


def _electric(port: int, folder: Path) -> Sequence[str]:
    return (str(shutil.which(ELECTRIC_PROGRAM)), "--port", str(port), "--data-dir", str(folder))


def _before(port: int, folder: Path) -> Sequence[str]:
    listen = ("--listen", f"127.0.0.1:{port}", "--data-dir", str(folder))
    return (os.environ[BEFORE_VARIABLE], "-m", "ursula", "serve", "--config", os.devnull, *listen)


def _electric_missing() -> str | None:
    return None if shutil.which(ELECTRIC_PROGRAM) else f"the program `{ELECTRIC_PROGRAM}` is not on the PATH"


def _before_missing() -> str | None:
    if BEFORE_VARIABLE in os.environ:
        return None
    return f"{BEFORE_VARIABLE} does not name the Python of an earlier version's environment"


def _node_missing() -> str | None:
    if shutil.which("node") is None:
        return "Node.js is not installed"
    if not (HERE / "node_modules" / "@durable-streams" / "server").is_dir():
        return "@durable-streams/server is not installed (make bench does it)"
    return None


@cache
def _rust_missing() -> str | None:
    return None if rust.find_server() else "the Rust program `ursula` is not on the PATH"


OURS = Kind("ours", "ours", _ours, ready=_OURS_READY)
OURS_BUCKETED = replace(OURS, prefix="/bench/", bucket="bench")
"""The same server, whose streams are in one bucket, for the routes that only a bucket has."""
BARE = Kind("bare", "bare HTTP layer", _bare)
REFERENCE_FILE = Kind("reference-file", "reference, files", _reference_file, missing=_node_missing)
REFERENCE_MEMORY = Kind("reference-memory", "reference, memory", _reference_memory, missing=_node_missing)
RUST = Kind(
    "rust",
    "Rust Ursula",
    _rust,
    ready="/__ursula/ready",
    prefix="/bench/",
    bucket="bench",
    api_style="ursula",
    missing=_rust_missing,
    tries=3,
)
ELECTRIC = Kind("electric", "Electric (Rust)", _electric, missing=_electric_missing)
BEFORE = Kind("before", "ours before", _before, ready=_OURS_READY, missing=_before_missing)
"""An earlier version of ours, to be compared with in the same run."""
KINDS = (OURS, REFERENCE_FILE, REFERENCE_MEMORY, RUST, ELECTRIC, BEFORE, BARE)
