"""The server process: a node and its HTTP side on one event loop, from start to shutdown."""

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import uvloop

from .. import logs
from ..cold.objects.open import open_store
from ..config import Address, Settings, StartRefused
from ..engine.clock import Clock, MovableClock, system_clock
from ..engine.failures import Superseded
from ..engine.node import Node
from ..engine.start import load_state as loading
from ..engine.start.data_folder import DataFolder, FolderRefused
from ..engine.start.heartbeat import RunningServer
from ..log.interface import LogDamaged
from ..model.codec.entry import EntryUnreadable
from .app import App
from .body.read import Bodies
from .cluster.bulk_write import check_row
from .services import ReadSettings, Services
from .syntax.cors import CorsPolicy
from .wire.server import BACKLOG, WireServer

TCP_USER_TIMEOUT_MILLISECONDS = 120_000
"""How long it takes to notice a client that vanished without disconnecting, or that reads nothing."""

STOP_SECONDS_MAX = 8.0
SPARE_FILES = 256
"""File descriptors for everything but connections: log, store, spools, bodies being written to disk."""

TEST_CLOCK = "URSULA_TEST_CLOCK"
"""The environment variable with the file by which tests move the clock of a server. It is not a setting."""

logger = logging.getLogger("ursula")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; raises StartRefused if it cannot start."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    clock = clock_of(os.environ)
    log = settings.server.log
    try:
        folder = DataFolder(settings.server.data_dir) if log.is_durable else None
    except FolderRefused as error:
        raise StartRefused(str(error)) from None
    listener = listen(settings.server.listen)
    connections_max = _clamp_connections(settings.limits.connections)
    advertise = settings.server.advertise
    if advertise.port == 0:
        advertise = Address(advertise.host, listener.getsockname()[1])
    node = Node(
        log,
        folder,
        settings.limits.log_segment_bytes,
        clock,
        cold=settings.cold,
        store=open_store(settings.cold, settings.server.data_dir) if log.is_durable else None,
        spool_bytes=settings.limits.spool_bytes,
        server=RunningServer(
            settings.server.node_id, str(advertise), None if folder is None else folder.path
        ),
        check_row=partial(check_row, settings.limits.append_bytes),
    )
    wire = WireServer(listener, connections_max, settings.limits.unread_bytes, settings.http.keep_alive)
    services = services_of(settings, node, wire, str(advertise))
    app = App(services)
    node.on_restart = services.live.end_all
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _ignore_hangup)
    _announce(settings, listener)
    serving = asyncio.create_task(wire.serve(app.handle, CorsPolicy(settings.cors.origins).lines(None)))
    running = asyncio.create_task(node.run())
    waiting = asyncio.create_task(stopping.wait())
    beside = [serving, waiting]
    if isinstance(clock, MovableClock):
        beside.append(asyncio.create_task(clock.watch(node.check_deadlines)))
    await asyncio.wait((serving, running, waiting), return_when=asyncio.FIRST_COMPLETED)
    ended = running if running.done() else serving if serving.done() else None
    failure = ended.exception() if ended is not None else None
    wire.is_stopping = True
    app.end_live(failure)
    serving.cancel()
    await wire.stop(STOP_SECONDS_MAX)
    await node.stop()
    for task in beside:
        task.cancel()
    if failure is None:
        logger.info("stopped")
        return 0
    if isinstance(failure, Superseded):
        logger.critical("stopped: %s", failure)
        return 1
    if isinstance(failure, LogDamaged | EntryUnreadable | loading.StoreRefused | FolderRefused):
        raise StartRefused(str(failure))
    if isinstance(failure, OSError) and ended is running:
        raise StartRefused(f"cannot use the data folder {settings.server.data_dir}: {failure}")
    logger.critical("the node failed", exc_info=failure)
    return 1


def clock_of(environ: Mapping[str, str]) -> Clock:
    """The machine's clock, or in our own tests one that they can move. Raises StartRefused."""
    path = environ.get(TEST_CLOCK)
    if path is None:
        return system_clock
    if environ.get("URSULA_TESTING") != "1":
        raise StartRefused(
            f"{TEST_CLOCK} is set, which moves the clock and is only for tests of Ursula itself: "
            "unset it (the tests set URSULA_TESTING=1 too)"
        )
    try:
        clock = MovableClock(Path(path))
    except (OSError, ValueError) as error:
        raise StartRefused(f"{TEST_CLOCK}={path} does not contain a number of seconds: {error}") from None
    logger.warning("a test controls the clock: %s=%s", TEST_CLOCK, path)
    return clock


def services_of(settings: Settings, node: Node, wire: WireServer, advertise: str) -> Services:
    """Assemble the services that handlers may use."""
    limits, http = settings.limits, settings.http
    return Services(
        node=node,
        wire=wire,
        cors=CorsPolicy(settings.cors.origins),
        bodies=Bodies(limits.append_bytes, limits.inflight_bytes, limits.body_timeout),
        reads=ReadSettings(
            cache_control=f"{http.cache}, max-age=60, stale-while-revalidate=300",
            long_poll_seconds=http.long_poll,
            sse_cycle_seconds=http.sse_cycle,
            sse_heartbeat_seconds=http.sse_heartbeat,
            sse_bytes=limits.sse_bytes,
        ),
        node_id=settings.server.node_id,
        advertise=advertise,
        spools=node.scratch,
    )


def _ignore_hangup() -> None:
    """The terminal was closed, or an operator expects SIGHUP to reload the settings."""
    logger.info("SIGHUP is ignored: settings are read only at the start, so restart to change them")


def listen(address: Address) -> socket.socket:
    """The socket on which clients connect. A second server on the same port is an error: no SO_REUSEPORT."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise StartRefused(
            f"cannot listen on {address}: {_reason(error)}; choose another address with --listen"
        ) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MILLISECONDS)
    return listener


def _reason(error: OSError) -> str:
    """The reason for the error, without the text that `create_server` adds to it."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _clamp_connections(connections: int) -> int:
    """Raise the limit of open files to fit the connections. Returns how many fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    possible = max(wanted - SPARE_FILES, wanted // 2)
    if possible < connections:
        logger.warning(
            "only %d connections are possible instead of %d (limits.connections), since only %d files may be "
            "open: raise `ulimit -n`",
            possible,
            connections,
            wanted,
        )
    return min(connections, possible)


def _announce(settings: Settings, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    durable = settings.server.log.is_durable
    logger.info(
        "listening on http://%s",
        Address(host, port),
        extra=logs.fields(
            address=str(Address(host, port)),
            data_dir=str(settings.server.data_dir) if durable else None,
            durability="every write is synced to disk" if durable else "none: memory only, lost at exit",
            node_id=settings.server.node_id,
        ),
    )
