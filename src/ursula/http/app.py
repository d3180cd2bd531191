"""From a request to its handler. Nothing sits between a request and the group but this table."""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from ..config import Settings
from ..engine.node import Node
from .bodies import Bodies
from .cors import Cors
from .errors import Problem
from .exchange import Exchange
from .headers import take_headers
from .health import ROUTES as HEALTH_ROUTES
from .live import Ending
from .long_poll import answer_long_poll
from .names import FLAT_PREFIX, RESERVED_BUCKETS, parse_stream_path
from .query import Live, parse_read_query
from .reads import answer_now, head_stream, read_stream
from .rsgi import Watcher
from .sse import FanOut, answer_sse
from .tokens import parse_offset
from .writes import AppendRequest, CreateRequest, create_bucket, delete_stream

STREAM_METHODS = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
BUCKET_METHODS = "PUT, OPTIONS"
HEALTH_METHODS = "GET, HEAD, OPTIONS"

_EXCHANGES = {"POST": AppendRequest, "PUT": CreateRequest}
_ANSWERS = {Live.NO: answer_now, Live.LONG_POLL: answer_long_poll, Live.SSE: answer_sse}

logger = logging.getLogger(__name__)


class App:
    """The HTTP side of a node."""

    def __init__(self, node: Node, settings: Settings) -> None:
        limits, http = settings.limits, settings.http
        self.node = node
        self.generation = node.generation
        self.cors = Cors(settings.cors.origins)
        self.bodies = Bodies(limits.append_bytes, limits.inflight_bytes, limits.body_timeout)
        self.cache_control = f"{http.cache}, max-age=60, stale-while-revalidate=300"
        self.long_poll_seconds = http.long_poll
        self.sse_cycle_seconds = http.sse_cycle
        self.sse_heartbeat_seconds = http.sse_heartbeat
        self.sse_bytes = limits.sse_bytes
        self.advertise = str(settings.server.advertise)
        self.fan_outs: dict[str, FanOut] = {}
        self.live: set[Ending] = set()
        self.stopping = False

    def handle(self, watcher: Watcher) -> None:
        """Answer a request, now or by a callback later."""
        scope = watcher.scope
        method, path = scope.method, scope.path
        exchange = _EXCHANGES.get(method, Exchange)(self, scope, watcher.proto)
        try:
            if path.startswith(FLAT_PREFIX) and self.node.recovered and method != "OPTIONS":
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
            exchange.refuse(error)
        else:
            logger.error("%s %s failed", exchange.scope.method, exchange.scope.path, exc_info=error)
            exchange.refuse(Problem("internal_error", "the server failed; its log says how"))

    def end_live(self) -> None:
        """Bring every live connection to an end that its client can go on from."""
        self.stopping = True
        for connection in tuple(self.live):
            connection.end()

    def location(self, exchange: Exchange) -> str:
        """The absolute URL of a request."""
        host = exchange.raw_headers.get("host") or self.advertise
        return f"{exchange.scope.scheme}://{host}{quote(exchange.scope.path, safe='/:@!$&()*+,;=~-._')}"

    def _route(self, exchange: Exchange, method: str, path: str) -> None:
        if method == "OPTIONS":
            self._preflight(exchange)
        elif path in HEALTH_ROUTES:
            if method not in ("GET", "HEAD"):
                raise not_allowed(method, HEALTH_METHODS)
            HEALTH_ROUTES[path](exchange)
        elif not self.node.recovered:
            progress = round(self.node.progress, 4)
            raise Problem("unavailable", f"the log is being replayed: {progress:.0%}", progress=progress)
        elif "/" in path[1:]:
            self._route_stream(exchange, method, path)
        else:
            self._route_bucket(exchange, method, path[1:])

    def _route_stream(self, exchange: Exchange, method: str, path: str) -> None:
        exchange.target = parse_stream_path(path)
        exchange.headers = take_headers(exchange.raw_headers)
        if isinstance(exchange, AppendRequest | CreateRequest):
            exchange.begin()
        elif method == "GET":
            self._read(exchange)
        elif method == "HEAD":
            head_stream(exchange)
        elif method == "DELETE":
            delete_stream(exchange)
        else:
            raise not_allowed(method, STREAM_METHODS)

    def _read(self, exchange: Exchange) -> None:
        query = parse_read_query(exchange.scope.query_string)
        if query.live is Live.SSE:
            resumed = exchange.headers.get("last-event-id")
            if resumed is not None:
                query = query._replace(offset=parse_offset(resumed))
            if query.offset is None:
                raise Problem("invalid_offset", "a live read needs an offset")
        read_stream(exchange, query, _ANSWERS[query.live])

    def _route_bucket(self, exchange: Exchange, method: str, name: str) -> None:
        if not name or (name in RESERVED_BUCKETS and method != "PUT"):
            raise Problem("route_not_found", "there is nothing at this path")
        if method != "PUT":
            raise not_allowed(method, BUCKET_METHODS)
        create_bucket(exchange, name)

    def _preflight(self, exchange: Exchange) -> None:
        exchange.common = self.cors.preflight(exchange.raw_headers.get("origin"))
        exchange.empty(204, [("allow", STREAM_METHODS)])


def not_allowed(method: str, allowed: str) -> Problem:
    """405, with what would be allowed."""
    return Problem("method_not_allowed", f"{method} is not possible here", [("allow", allowed)])
