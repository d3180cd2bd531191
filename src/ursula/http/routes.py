"""Every route: its method and path, its handler, its label in the metrics, and whether it is
served during replay.

A handler gets an exchange and answers it. Handlers are coroutines, except for appends and reads of streams,
which are most requests: they answer from callbacks, without a task for each.
"""

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, NamedTuple

from .bucket.bucket import create_bucket, delete_bucket, get_bucket, list_streams
from .cluster.bulk_write import ingest, stage
from .cluster.flush import flush, purge_log, trigger_snapshot
from .cluster.plan import get_plan
from .cluster.replace_segments import replace
from .cluster.status import get_hot_cold_stats, get_status, list_buckets, transfer_leader
from .cluster.undelete import undelete
from .errors import Problem
from .exchange import Exchange
from .observe import request_stats as label
from .observe.health import healthz, readyz_cluster, readyz_local
from .observe.prometheus import get_metrics
from .stream.append import append
from .stream.append_batch import append_batch
from .stream.attributes import get_attributes, put_attributes
from .stream.bootstrap import get_bootstrap
from .stream.create import create_stream
from .stream.delete import delete_stream
from .stream.get import get_stream
from .stream.read import head_stream
from .stream.snapshot import (
    delete_snapshot,
    find_snapshot,
    get_snapshot,
    publish_snapshot,
    put_retention,
)
from .syntax.cors import PREFLIGHT_LINES
from .syntax.names import FLAT_PREFIX, NO_TARGET, RESERVED_BUCKETS, RESERVED_STREAM, Target, parse_stream_path

Handler = Callable[[Exchange], Coroutine[Any, Any, None] | None]

_RESOLVED_MAX = 4096


class Route(NamedTuple):
    """A row of the table."""

    method: str
    path: str
    handler: Handler
    label: str
    during_replay: bool = False
    writes_streams: bool = False
    """Whether it writes to the streams that its body names."""


class Match(NamedTuple):
    """The result of resolving a method and a path: a route and its target, or the problem with them."""

    route: Route
    target: Target
    problem: Problem | None = None


async def preflight(exchange: Exchange) -> None:
    """OPTIONS on any path: what browsers may do here."""
    exchange.cors_lines += PREFLIGHT_LINES
    exchange.reply_empty(204, [("allow", _allowed(_TABLE["/{bucket}/{stream}"]))])


async def not_found(exchange: Exchange) -> None:
    """Any request on a path that has no route."""
    raise Problem("route_not_found", "there is nothing at this path")


APPEND = Route("POST", "/{bucket}/{stream}", append, label.STREAM)
PREFLIGHT = Route("OPTIONS", "*", preflight, label.PREFLIGHT, during_replay=True)
UNKNOWN = Route("*", "*", not_found, label.UNKNOWN)
NO_STREAM = Route("*", "/{bucket}/{stream}", not_found, label.STREAM)
"""The route of a path that should name a stream, but with a name that no stream can have."""

ROUTES = (
    Route("GET", "/{bucket}/{stream}", get_stream, label.STREAM),
    Route("HEAD", "/{bucket}/{stream}", head_stream, label.STREAM),
    Route("PUT", "/{bucket}/{stream}", create_stream, label.STREAM),
    APPEND,
    Route("DELETE", "/{bucket}/{stream}", delete_stream, label.STREAM),
    Route("POST", "/{bucket}/{stream}/append-batch", append_batch, label.APPEND_BATCH),
    Route("GET", "/{bucket}/{stream}/attrs", get_attributes, label.ATTRIBUTES),
    Route("PUT", "/{bucket}/{stream}/attrs", put_attributes, label.ATTRIBUTES),
    Route("GET", "/{bucket}/{stream}/bootstrap", get_bootstrap, label.BOOTSTRAP),
    Route("PUT", "/{bucket}/{stream}/retention/{offset}", put_retention, label.RETENTION),
    Route("GET", "/{bucket}/{stream}/snapshot", find_snapshot, label.SNAPSHOT),
    Route("HEAD", "/{bucket}/{stream}/snapshot", find_snapshot, label.SNAPSHOT),
    Route("GET", "/{bucket}/{stream}/snapshot/{offset}", get_snapshot, label.SNAPSHOT),
    Route("HEAD", "/{bucket}/{stream}/snapshot/{offset}", get_snapshot, label.SNAPSHOT),
    Route("PUT", "/{bucket}/{stream}/snapshot/{offset}", publish_snapshot, label.SNAPSHOT),
    Route("DELETE", "/{bucket}/{stream}/snapshot/{offset}", delete_snapshot, label.SNAPSHOT),
    Route("GET", "/{bucket}", get_bucket, label.BUCKET),
    Route("PUT", "/{bucket}", create_bucket, label.BUCKET),
    Route("DELETE", "/{bucket}", delete_bucket, label.BUCKET),
    Route("GET", "/{bucket}/streams", list_streams, label.STREAMS),
    Route("GET", "/healthz", healthz, label.HEALTH, during_replay=True),
    Route("HEAD", "/healthz", healthz, label.HEALTH, during_replay=True),
    Route("GET", "/readyz/local", readyz_local, label.HEALTH, during_replay=True),
    Route("HEAD", "/readyz/local", readyz_local, label.HEALTH, during_replay=True),
    Route("GET", "/readyz/cluster", readyz_cluster, label.HEALTH, during_replay=True),
    Route("HEAD", "/readyz/cluster", readyz_cluster, label.HEALTH, during_replay=True),
    Route("GET", "/metrics", get_metrics, label.METRICS, during_replay=True),
    Route("HEAD", "/metrics", get_metrics, label.METRICS, during_replay=True),
    Route("GET", "/cluster/status", get_status, label.CLUSTER, during_replay=True),
    Route("HEAD", "/cluster/status", get_status, label.CLUSTER, during_replay=True),
    Route("GET", "/cluster/hot-cold-stats", get_hot_cold_stats, label.CLUSTER),
    Route("HEAD", "/cluster/hot-cold-stats", get_hot_cold_stats, label.CLUSTER),
    Route("GET", "/cluster/buckets", list_buckets, label.CLUSTER),
    Route("HEAD", "/cluster/buckets", list_buckets, label.CLUSTER),
    Route("GET", "/cluster/plan", get_plan, label.CLUSTER),
    Route("HEAD", "/cluster/plan", get_plan, label.CLUSTER),
    Route("POST", "/cluster/staging", stage, label.CLUSTER),
    Route("POST", "/cluster/ingest", ingest, label.CLUSTER, writes_streams=True),
    Route("POST", "/cluster/replace-segments", replace, label.CLUSTER),
    Route("POST", "/cluster/flush", flush, label.CLUSTER),
    Route("POST", "/cluster/trigger-snapshot", trigger_snapshot, label.CLUSTER),
    Route("POST", "/cluster/purge-log", purge_log, label.CLUSTER),
    Route("POST", "/cluster/undelete", undelete, label.CLUSTER, writes_streams=True),
    Route("POST", "/cluster/transfer-leader", transfer_leader, label.CLUSTER),
)

_TABLE: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _TABLE.setdefault(_route.path, {})[_route.method] = _route


@lru_cache(maxsize=_RESOLVED_MAX)
def resolve(method: str, path: str) -> Match:
    """The route of a request. Every request has one; if it cannot be served, the match says why."""
    if method == "OPTIONS":
        return Match(PREFLIGHT, NO_TARGET)
    if path in _TABLE and "{" not in path:
        return _match(path, method, NO_TARGET)
    if path.startswith(FLAT_PREFIX):
        return _stream(method, path)
    bucket, slash, name = path[1:].partition("/")
    if not slash:
        return _bucket("/{bucket}", method, bucket)
    if bucket == "cluster":
        return Match(UNKNOWN, NO_TARGET)
    if name == RESERVED_STREAM and method not in ("PUT", "POST"):
        return _bucket("/{bucket}/streams", method, bucket)
    return _stream(method, path)


def _bucket(path: str, method: str, bucket: str) -> Match:
    if not bucket or (bucket in RESERVED_BUCKETS and method != "PUT"):
        return Match(UNKNOWN, NO_TARGET)
    return _match(path, method, Target(bucket, "", False))


def _stream(method: str, path: str) -> Match:
    try:
        target = parse_stream_path(path)
    except Problem as problem:
        return Match(NO_STREAM, NO_TARGET, problem.with_traceback(None))
    template = "/{bucket}/{stream}"
    if target.part:
        template += f"/{target.part}" if target.argument is None else f"/{target.part}/{{offset}}"
    return _match(template, method, target)


def _match(path: str, method: str, target: Target) -> Match:
    """The route of a method; if there is none, 405 with the methods that are allowed."""
    routes = _TABLE[path]
    route = routes.get(method)
    if route is not None:
        return Match(route, target)
    allowed = [("allow", _allowed(routes))]
    problem = Problem("method_not_allowed", f"{method} is not allowed here", allowed)
    return Match(next(iter(routes.values())), target, problem)


def _allowed(routes: dict[str, Route]) -> str:
    return ", ".join([*routes, "OPTIONS"])
