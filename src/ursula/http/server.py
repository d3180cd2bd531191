"""The server process: a node and its HTTP side on one event loop, from start to shutdown."""

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from .. import logs
from ..cluster.failures import ClusterRefused, EtcdFailed
from ..cold.objects.open import open_store
from ..cold.objects.store import Store, StoreFailed
from ..config import Address, LogKind, Settings, StartRefused
from ..engine.clock import Clock, MovableClock, system_clock
from ..engine.failures import Superseded
from ..engine.interface import ClusterApi
from ..engine.node import Node
from ..engine.start import load_state as loading
from ..engine.start.data_folder import DataFolder, FolderRefused
from ..engine.start.heartbeat import RunningServer
from ..extras import how_to_install
from ..log.interface import LogDamaged
from ..model.codec.entry import EntryUnreadable
from .app import App
from .body.read import Bodies
from .certainty import Contact
from .cluster.bulk_write import check_row
from .leader_only import LeaderOnly
from .live.connections import LiveConnections
from .not_joined import NotJoined
from .services import ReadSettings, Services
from .syntax.cors import CorsPolicy
from .wire.server import BACKLOG, WireServer

if TYPE_CHECKING:
    from ..cluster.cluster import Cluster

TCP_USER_TIMEOUT_MILLISECONDS = 120_000
"""How long it takes to notice a client that vanished without disconnecting, or that reads nothing."""

STOP_SECONDS_MAX = 8.0
SPARE_FILES = 256
"""File descriptors for everything but connections: log, store, spools, bodies being written to disk."""

TEST_CLOCK = "URSULA_TEST_CLOCK"
"""The environment variable with the file by which tests move the clock of a server. It is not a setting."""

TEST_KEPT_BYTES = "URSULA_TEST_KEPT_BYTES"
"""The environment variable by which tests have a cluster keep fewer recent entries. It is not a setting."""

MakeApp = Callable[["Cluster | None"], tuple[Node, App]]
"""Makes the node and its HTTP side, once it is known which cluster the node belongs to."""

logger = logging.getLogger("ursula")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; raises StartRefused if it cannot start."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    clock, kept_bytes = clock_of(os.environ), kept_bytes_of(os.environ)
    log = settings.server.log
    try:
        is_member = log is LogKind.ETCD
        folder = DataFolder(settings.server.data_dir, is_member=is_member) if log.is_durable else None
    except FolderRefused as error:
        raise StartRefused(str(error)) from None
    with listen(settings.server.listen) as listener:
        return await _serve_on(listener, settings, clock, folder, kept_bytes)


async def _serve_on(
    listener: socket.socket,
    settings: Settings,
    clock: Clock,
    folder: DataFolder | None,
    kept_bytes: int | None,
) -> int:
    log = settings.server.log
    connections_max = _clamp_connections(settings.limits.connections)
    wire = WireServer(listener, connections_max, settings.limits.unread_bytes, settings.http.keep_alive)
    store = (
        open_store(settings.cold, settings.server.data_dir, settings.server.node_id)
        if log.is_durable
        else None
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _ignore_hangup)
    _announce(settings, listener)
    advertise = settings.server.advertise
    if advertise.port == 0:
        advertise = Address(advertise.host, listener.getsockname()[1])

    def make_app(cluster: "Cluster | None") -> tuple[Node, App]:
        live = LiveConnections()
        node = Node(
            log,
            folder,
            settings.limits.log_segment_bytes,
            clock,
            cold=settings.cold,
            store=store,
            spool_bytes=settings.limits.spool_bytes,
            server=RunningServer(
                settings.server.node_id, str(advertise), None if folder is None else folder.path
            ),
            check_row=partial(check_row, settings.limits.append_bytes),
            role=None if cluster is None else cluster.role,
            write_wait_seconds=None if cluster is None else settings.cluster.write_wait,
            open_shared=None if cluster is None else cluster.open_log,
            peers=None if cluster is None else cluster.peers,
            on_restart=live.end_all,
        )
        is_local = cluster is not None and settings.http.reads == "local"
        contact = Contact(node) if is_local else None
        services = services_of(settings, node, wire, str(advertise), live, cluster, contact)
        if cluster is not None and settings.server.write_only_leader:
            return node, App(services, LeaderOnly(cluster).check)
        return node, App(services)

    server = _Server(settings, clock, wire, asyncio.create_task(stopping.wait()))
    if folder is None or store is None or log is not LogKind.ETCD:
        return await server.run(*make_app(None))
    cluster = open_cluster(settings, store, clock, kept_bytes)
    return await server.run_member(cluster, folder, make_app)


class _Server:
    """The server while it serves and stops."""

    def __init__(
        self, settings: Settings, clock: Clock, wire: WireServer, told_to_stop: "asyncio.Task[Any]"
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._wire = wire
        self._told_to_stop = told_to_stop
        self._cors = CorsPolicy(settings.cors.origins)
        self._common = self._cors.lines(None)

    async def run(self, node: Node, app: App) -> int:
        """Serve a single node; returns the exit code."""
        return await self._run(node, app, [asyncio.create_task(self._wire.serve(app.handle, self._common))])

    async def run_member(self, cluster: "Cluster", folder: DataFolder, make_app: MakeApp) -> int:
        """Join a cluster, then serve a node of it; returns the exit code."""
        not_joined = NotJoined(self._settings.server.node_id, cluster, self._wire, self._cors)
        joining = asyncio.create_task(cluster.join(folder.found_identity))
        serving = asyncio.create_task(self._wire.serve(not_joined.handle, self._common))
        try:
            await asyncio.wait((joining, serving, self._told_to_stop), return_when=asyncio.FIRST_COMPLETED)
            if not joining.done():
                joining.cancel()
                failure = serving.exception() if serving.done() else None
                await self._end((serving,))
                return self._exit_code(failure, is_node=False)
            folder.join(joining.result())
            node, app = make_app(cluster)
            self._wire.pass_on_to(app.handle)
            watching = [asyncio.create_task(cluster.run(app.end_waiting, node.group_reports))]
            if app.contact is not None:
                watching.append(asyncio.create_task(app.contact.run()))
            return await self._run(node, app, [serving, *watching], cluster)
        except (ClusterRefused, EtcdFailed, FolderRefused, StoreFailed) as failure:
            raise StartRefused(str(failure)) from None
        finally:
            await cluster.close()

    async def _run(
        self, node: Node, app: App, others: list["asyncio.Task[None]"], cluster: "Cluster | None" = None
    ) -> int:
        running = asyncio.create_task(node.run())
        beside = []
        if isinstance(self._clock, MovableClock):
            beside.append(asyncio.create_task(self._clock.watch(node.check_deadlines)))
        await asyncio.wait((running, *others, self._told_to_stop), return_when=asyncio.FIRST_COMPLETED)
        ended = next((task for task in (running, *others) if task.done()), None)
        failure = ended.exception() if ended is not None else None
        if cluster is not None:
            await cluster.leave()  # while requests are still answered, so that none has to wait for it
        self._wire.is_stopping = True
        app.end_live(failure)
        await self._end(others)
        await node.stop()
        for task in beside:
            task.cancel()
        return self._exit_code(failure, is_node=ended is running)

    async def _end(self, tasks: "Sequence[asyncio.Task[None]]") -> None:
        """Answer the last requests, and accept no more."""
        for task in tasks:
            task.cancel()
        await self._wire.stop(STOP_SECONDS_MAX)

    def _exit_code(self, failure: BaseException | None, is_node: bool) -> int:
        """What a server that has stopped tells its caller; raises StartRefused if only a person can help."""
        if failure is None:
            logger.info("stopped")
            return 0
        if isinstance(failure, Superseded):
            logger.critical("stopped: %s", failure)
            return 1
        if isinstance(
            failure,
            LogDamaged | EntryUnreadable | loading.StoreRefused | FolderRefused | ClusterRefused | EtcdFailed,
        ):
            raise StartRefused(str(failure))
        if isinstance(failure, OSError) and is_node:
            raise StartRefused(f"cannot use the data folder {self._settings.server.data_dir}: {failure}")
        logger.critical("the node failed", exc_info=failure)
        return 1


def open_cluster(settings: Settings, store: Store, clock: Clock, kept_bytes: int | None = None) -> "Cluster":
    """This node's part in its cluster; raises StartRefused if that is impossible on this machine."""
    try:
        from ..cluster.cluster import Cluster
    except ModuleNotFoundError as error:
        raise StartRefused(
            f"a cluster needs {error.name}, which is not installed: {how_to_install('cluster')}"
        ) from None
    try:
        return Cluster(settings.server, settings.cluster, store, clock, kept_bytes)
    except ClusterRefused as error:
        raise StartRefused(str(error)) from None


def clock_of(environ: Mapping[str, str]) -> Clock:
    """The machine's clock, or in our own tests one that they can move. Raises StartRefused."""
    path = environ.get(TEST_CLOCK)
    if path is None:
        return system_clock
    _check_is_test(environ, TEST_CLOCK, "moves the clock")
    try:
        clock = MovableClock(Path(path))
    except (OSError, ValueError) as error:
        raise StartRefused(f"{TEST_CLOCK}={path} does not contain a number of seconds: {error}") from None
    logger.warning("a test controls the clock: %s=%s", TEST_CLOCK, path)
    return clock


def kept_bytes_of(environ: Mapping[str, str]) -> int | None:
    """How many bytes of recent entries our own tests have a log keep; None as usual. Raises StartRefused."""
    text = environ.get(TEST_KEPT_BYTES)
    if text is None:
        return None
    _check_is_test(environ, TEST_KEPT_BYTES, "shortens the log of a cluster")
    if not (text.isascii() and text.isdigit()):
        raise StartRefused(f"{TEST_KEPT_BYTES}={text} is not a number of bytes")
    logger.warning("a test shortens the log of the cluster: %s=%s", TEST_KEPT_BYTES, text)
    return int(text)


def _check_is_test(environ: Mapping[str, str], name: str, effect: str) -> None:
    if environ.get("URSULA_TESTING") != "1":
        raise StartRefused(
            f"{name} is set, which {effect} and is only for tests of Ursula itself: "
            "unset it (the tests set URSULA_TESTING=1 too)"
        )


def services_of(
    settings: Settings,
    node: Node,
    wire: WireServer,
    advertise: str,
    live: LiveConnections,
    cluster: ClusterApi | None = None,
    contact: Contact | None = None,
) -> Services:
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
        cluster=cluster,
        contact=contact,
        live=live,
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
