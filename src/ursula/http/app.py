"""From a request to its handler. Nothing sits between a request and the group but these tables."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import quote

from ..config import Settings
from ..engine.node import Node
from .body.read import Bodies
from .bucket.bucket import create_bucket, delete_bucket, get_bucket, list_streams
from .bucket.feed_lines import FeedLines
from .cluster.bulk_write import check_row
from .cluster.status import ROUTES as OPERATION_ROUTES
from .errors import Problem
from .exchange import Exchange
from .observe.health import ROUTES as HEALTH_ROUTES
from .observe.request_stats import (
    BUCKET,
    PREFLIGHT,
    ROUTE_OF_PART,
    ROUTE_OF_SERVER,
    STREAMS,
    UNKNOWN,
    Traffic,
)
from .stream.append import AppendRequest, CreateRequest, delete_stream
from .stream.append_batch import append_batch
from .stream.attributes import get_attributes, put_attributes
from .stream.bootstrap import get_bootstrap
from .stream.live import Ending
from .stream.modes import get_stream
from .stream.read import head_stream
from .stream.snapshot import delete_snapshot, get_snapshot, publish_snapshot, put_retention
from .stream.sse import FanOut
from .syntax.cors import PREFLIGHT_LINES, Cors
from .syntax.headers import take_headers
from .syntax.hosts import is_valid_host
from .syntax.names import FLAT_PREFIX, RESERVED_BUCKETS, RESERVED_STREAM, Target, parse_stream_path
from .wire.request import Request
from .wire.server import WireServer

Handler = Callable[[Exchange], None]

_EXCHANGES: dict[str, type[Exchange]] = {"POST": AppendRequest, "PUT": CreateRequest}

STREAM_ROUTES: dict[str, dict[str, Handler]] = {
    "": {
        "GET": get_stream,
        "HEAD": head_stream,
        "PUT": CreateRequest.begin,  # type: ignore[dict-item]
        "POST": AppendRequest.begin,  # type: ignore[dict-item]
        "DELETE": delete_stream,
    },
    "attrs": {"GET": get_attributes, "PUT": put_attributes},
    "snapshot": {
        "GET": get_snapshot,
        "HEAD": get_snapshot,
        "PUT": publish_snapshot,
        "DELETE": delete_snapshot,
    },
    "retention": {"PUT": put_retention},
    "bootstrap": {"GET": get_bootstrap},
    "append-batch": {"POST": append_batch},
}
"""What can be done with a stream, and with the parts that belong to one."""

BUCKET_ROUTES: dict[str, Handler] = {"GET": get_bucket, "PUT": create_bucket, "DELETE": delete_bucket}
LIST_ROUTES: dict[str, Handler] = {"GET": list_streams}

SERVER_ROUTES: dict[str, dict[str, Handler]] = HEALTH_ROUTES | OPERATION_ROUTES
"""What concerns the whole server. The health routes answer also while the log is replayed."""

logger = logging.getLogger(__name__)


class App:
    """The HTTP side of a node."""

    def __init__(self, node: Node, settings: Settings, wire: WireServer) -> None:
        limits, http = settings.limits, settings.http
        self.node = node
        self.wire = wire
        self.generation = node.generation
        self.node_id = settings.server.node_id
        self.cors = Cors(settings.cors.origins)
        self.bodies = Bodies(limits.append_bytes, limits.inflight_bytes, limits.body_timeout)
        self.cache_control = f"{http.cache}, max-age=60, stale-while-revalidate=300"
        self.long_poll_seconds = http.long_poll
        self.sse_cycle_seconds = http.sse_cycle
        self.sse_heartbeat_seconds = http.sse_heartbeat
        self.sse_bytes = limits.sse_bytes
        self.advertise = str(settings.server.advertise)
        node.ingesters.check = partial(check_row, limits.append_bytes)
        self.traffic = Traffic()
        self.fan_outs: dict[str, FanOut] = {}
        self.feed_lines = FeedLines()
        self.live: set[Ending] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False
        self.failure: str | None = None

    def handle(self, request: Request) -> None:
        """Answer a request, now or by a callback later. Its body may still be on its way."""
        method, path = request.method, request.path
        is_able = self.node.recovered and self.failure is None
        if method == "POST" and is_able and AppendRequest.at_once(self, request):
            return
        is_flat = path.startswith(FLAT_PREFIX)
        is_stream = is_flat or (path.count("/") == 2 and path not in SERVER_ROUTES)
        kind = _EXCHANGES.get(method, Exchange) if is_stream else Exchange
        exchange = kind(self, request)
        try:
            is_of_stream = is_flat or (kind is not Exchange and not path.startswith("/cluster/"))
            if is_of_stream and is_able and method != "OPTIONS":
                self._route_stream(exchange, method, path)
            else:
                self._route(exchange, method, path)
        except Exception as error:
            self.failed(exchange, error)

    def guard(self, exchange: Exchange, function: Callable[..., None], *arguments: Any) -> None:
        """Call something that may find a problem with the request, which then is its answer."""
        try:
            function(*arguments)
        except Exception as error:
            self.failed(exchange, error)

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """Answer a request that has a problem, or was one for us."""
        if isinstance(error, Problem):
            if error.code == "object_damaged":  # who can mend it reads the log
                logger.error("%s %s: %s", exchange.request.method, exchange.request.path, error.message)
            exchange.refuse(error)
        else:
            logger.error("%s %s failed", exchange.request.method, exchange.request.path, exc_info=error)
            exchange.refuse(Problem("internal_error", "the server failed; its log says how"))

    def spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Go on with a request in a task; what it raises is the answer."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.failed(exchange, error)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            work.close()  # if the task was cancelled before it began, so that nobody misses it

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(done)
        return task

    def end_live(self, failure: BaseException | None = None) -> None:
        """Bring every live connection to an end that its client can go on from.

        After a failure of the node all that is asked for from now on is answered with that.
        """
        self.stopping = True
        if failure is not None:
            self.failure = f"the server is stopping: {failure}"
        for connection in tuple(self.live):
            connection.end()

    def location(self, exchange: Exchange, path: str | None = None) -> str:
        """The absolute URL of a request, or of another path."""
        given = exchange.raw_headers.get("host", [])
        host = given[0] if len(given) == 1 and is_valid_host(given[0]) else self.advertise
        path = exchange.request.path if path is None else path
        return f"{exchange.request.scheme}://{host}{quote(path, safe='/:@!$&()*+,;=~-._')}"

    def _route(self, exchange: Exchange, method: str, path: str) -> None:
        if path.startswith("/cluster/"):
            exchange.common = self.cors.listed(exchange.raw_headers.first("origin"))
        if method == "OPTIONS":
            self._preflight(exchange)
            return
        bucket, slash, name = path[1:].partition("/")
        routes = SERVER_ROUTES.get(path)
        if routes is not None:
            exchange.route = ROUTE_OF_SERVER[bucket]
        elif not slash:
            exchange.route = BUCKET
        elif name == RESERVED_STREAM:
            exchange.route = STREAMS
        if self.failure is not None:
            raise Problem("unavailable", self.failure)
        if not self.node.recovered and path not in HEALTH_ROUTES:
            progress = round(self.node.progress, 4)
            raise Problem("unavailable", f"{self.node.busy_with}: {progress:.0%}", progress=progress)
        if routes is not None:
            _handler(routes, method)(exchange)
        elif slash and bucket == "cluster":
            raise _nothing_here(exchange)
        elif not slash:
            self._route_bucket(exchange, method, bucket, BUCKET_ROUTES)
        elif name == RESERVED_STREAM and method not in _EXCHANGES:
            self._route_bucket(exchange, method, bucket, LIST_ROUTES)
        else:
            self._route_stream(exchange, method, path)

    def _route_stream(self, exchange: Exchange, method: str, path: str) -> None:
        target = exchange.target = parse_stream_path(path)
        if target.part:
            exchange.route = ROUTE_OF_PART[target.part]
        exchange.headers = take_headers(exchange.raw_headers)
        _handler(STREAM_ROUTES[target.part], method)(exchange)

    def _route_bucket(self, exchange: Exchange, method: str, name: str, routes: dict[str, Handler]) -> None:
        if not name or (name in RESERVED_BUCKETS and method != "PUT"):
            raise _nothing_here(exchange)
        exchange.target = Target(name, "", False)
        exchange.headers = take_headers(exchange.raw_headers)
        _handler(routes, method)(exchange)

    def _preflight(self, exchange: Exchange) -> None:
        exchange.route = PREFLIGHT
        exchange.common += PREFLIGHT_LINES
        exchange.empty(204, [("allow", _allowed(STREAM_ROUTES[""]))])


def _nothing_here(exchange: Exchange) -> Problem:
    """404 for a path that means nothing."""
    exchange.route = UNKNOWN
    return Problem("route_not_found", "there is nothing at this path")


def _handler(routes: dict[str, Handler], method: str) -> Handler:
    """What answers a method; 405, with what would be allowed, if nothing does."""
    handler = routes.get(method)
    if handler is None:
        allowed = [("allow", _allowed(routes))]
        raise Problem("method_not_allowed", f"{method} is not possible here", allowed)
    return handler


def _allowed(routes: dict[str, Handler]) -> str:
    return ", ".join([*routes, "OPTIONS"])
