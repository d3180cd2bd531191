"""The server process: Granian embedded in our event loop, on a socket of our own.

Granian runs in this one process, since its worker processes outlive a killed parent and would go on
writing. Its scheduler is replaced by one that hands each request to the app directly: no task and
no coroutine per request.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
from typing import Any

import granian.server.embed as embedded
from granian._granian import CallbackScheduler, RSGIWorker, SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings

from .. import logs
from ..cold.opening import open_store
from ..config import Address, Settings, StartRefused
from ..engine import loading
from ..engine.flusher import Superseded
from ..engine.folder import DataFolder, FolderRefused
from ..engine.node import Node
from ..log.seam import LogDamaged
from ..model.entry import EntryUnreadable
from .app import App
from .loop import CoalescingLoop
from .small_bodies import Handle, SmallBodies

BACKLOG = 4096
TCP_USER_TIMEOUT_MILLISECONDS = 20_000
HEADER_TIMEOUT_MILLISECONDS = 30_000
STOP_SECONDS_MAX = 8.0
SPARE_FILES = 256

logger = logging.getLogger("ursula")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises StartRefused if it cannot start."""
    with asyncio.Runner(loop_factory=CoalescingLoop) as runner:
        code = runner.run(_serve(settings))
    # A body that was never sent to its end keeps a thread of Granian's waiting, and us with it.
    logging.shutdown()
    os._exit(code)


async def _serve(settings: Settings) -> int:
    try:
        folder = DataFolder(settings.server.data_dir) if settings.server.log == "file" else None
    except FolderRefused as error:
        raise StartRefused(str(error)) from None
    listener = _listen(settings.server.listen)
    _raise_file_limit(settings.limits.connections)
    node = Node(
        folder,
        settings.limits.log_segment_bytes,
        cold=settings.cold,
        store=open_store(settings.cold, settings.server.data_dir) if folder is not None else None,
        spool_bytes=settings.limits.spool_bytes,
    )
    app = App(node, settings)
    if settings.server.advertise.port == 0:
        app.advertise = str(Address(settings.server.advertise.host, listener.getsockname()[1]))
    server = _Server(app.handle, listener, settings.limits.connections)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    _announce(settings, listener)
    serving = asyncio.create_task(server.serve())
    running = asyncio.create_task(node.run())
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((serving, running, waiting), return_when=asyncio.FIRST_COMPLETED)
    ended = running if running.done() else serving if serving.done() else None
    failure = ended.exception() if ended is not None else None
    app.end_live()
    server.stop()
    await asyncio.wait((serving,), timeout=STOP_SECONDS_MAX)
    await node.stop()
    if failure is None:
        logger.info("stopped")
        return 0
    if isinstance(failure, LogDamaged | EntryUnreadable | loading.StartRefused | FolderRefused | Superseded):
        raise StartRefused(str(failure))
    if isinstance(failure, OSError) and ended is running:
        raise StartRefused(f"cannot use the data folder {settings.server.data_dir}: {failure}")
    logger.critical("the node failed", exc_info=failure)
    return 1


def _listen(address: Address) -> socket.socket:
    """Our own socket: Granian would set SO_REUSEPORT, and two servers on one port would be no error."""
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
    """What went wrong, without what `create_server` adds to it."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _raise_file_limit(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        logger.warning(
            "only %d files may be open, which is less than limits.connections needs: raise `ulimit -n`", hard
        )
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _announce(settings: Settings, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    durable = settings.server.log == "file"
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


class _Server(embedded.Server):  # type: ignore[misc]
    """Granian's embedded server with our socket and our scheduler."""

    def __init__(self, handle: Handle, listener: socket.socket, connections: int) -> None:
        super().__init__(
            handle,
            interface=Interfaces.RSGI,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=connections,
            http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MILLISECONDS),
            log_enabled=False,
        )
        self._listener = listener
        embedded._new_cbscheduler = lambda loop, callback, impl_asyncio: _Scheduler(
            loop, handle, None, None, None
        )
        embedded.RSGIWorker = _Worker

    def _init_shared_socket(self) -> None:
        self._shd = SocketHolder(self._listener.detach(), False, BACKLOG)  # type: ignore[call-arg]
        self._sfd = self._shd.get_fd()
        self._ssp = None


class _Worker:
    """Granian's worker on the runtime of tokio that is made for several threads, with one.

    The other one is woken by a system call for each answer and each body, also while it is at work.
    """

    def __init__(self, *arguments: Any) -> None:
        self._worker = RSGIWorker(*arguments)
        self.serve_async = self._worker.serve_mtr  # type: ignore[attr-defined]


class _Scheduler(CallbackScheduler):
    """Hands each request to the app on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Handle, *unused: Any) -> None:
        super().__init__()
        self._schedule_fn = SmallBodies(loop, handle).schedule
