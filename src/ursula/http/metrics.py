"""What an operator sees of a running server: GET /metrics, in the text format of Prometheus.

The numbers are kept by those who have them, as plain numbers; here they are put into families when
someone asks. A family that could not be true is left out: a log in memory has no syncs.
"""

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from ..engine.status import GroupStatus
from ..tally import Tally
from .exchange import Exchange
from .traffic import LIVE, Traffic

if TYPE_CHECKING:
    from .app import App

LIVE_KINDS = ("long_poll", "sse")

_HEADERS = [("content-type", CONTENT_TYPE_LATEST), ("cache-control", "no-store")]


def get_metrics(exchange: Exchange) -> None:
    """GET on the metrics."""

    async def answer() -> None:
        app = exchange.app
        hot_bytes = await app.node.hot_bytes()
        body = await asyncio.to_thread(render, list(families(app, hot_bytes)))
        exchange.send(200, _HEADERS, body)

    exchange.app.spawn(exchange, answer())


class Collected(Collector):
    """Families that were put together already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._metrics


def render(metrics: Iterable[Metric]) -> bytes:
    """The families and those of the process as text. Counting open files takes long: not for the loop."""
    registry = CollectorRegistry()
    registry.register(Collected(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def families(app: "App", hot_bytes: int) -> Iterator[Metric]:
    """Everything there is to tell, as of now."""
    yield InfoMetricFamily(
        "ursula_build",
        "Which version this is.",
        {"version": version("ursula"), "python": platform.python_version()},
    )
    yield from _requests(app.traffic)
    yield from _live(app)
    yield from _backpressure(app)
    yield from _recovery(app)
    statuses = app.node.statuses()
    yield from _appends(statuses)
    yield from _logs(statuses)
    yield _gauge("ursula_buckets", "Buckets.", sum(group.bucket_count for group in statuses))
    yield _gauge(
        "ursula_streams",
        "Streams, those included that are deleted but still needed by forks.",
        sum(group.stream_count for group in statuses),
    )
    yield _gauge("ursula_hot_bytes", "Bytes of messages and events that are held in memory.", hot_bytes)


def _requests(traffic: Traffic) -> Iterator[Metric]:
    labels = ("route", "method", "status")
    counts = CounterMetricFamily("ursula_http_requests", "Requests that were answered.", labels=labels)
    latencies = HistogramMetricFamily(
        "ursula_http_request_duration_seconds",
        "Time from a request's head to its answer; not for live reads, which wait on purpose.",
        labels=labels,
    )
    for (route, method, status), latency in sorted(traffic.latencies.items()):
        values = (route, method, str(status))
        counts.add_metric(values, latency.count)
        if route not in LIVE:
            latencies.add_metric(values, _buckets(latency), latency.total)
    yield counts
    yield latencies


def _live(app: "App") -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "ursula_live_connections", "Requests that wait for something new.", labels=("kind",)
    )
    found = Counter(connection.kind for connection in app.live)
    for kind in LIVE_KINDS:
        connections.add_metric((kind,), found[kind])
    yield connections
    yield _gauge(
        "ursula_live_watchers",
        "Who is called when something changes; all SSE connections of a stream are one.",
        sum(group.watcher_count for group in app.node.statuses()),
    )
    yield CounterMetricFamily(
        "ursula_live_sse_bytes", "Bytes sent as server-sent events.", app.traffic.sse_bytes
    )


def _backpressure(app: "App") -> Iterator[Metric]:
    bodies, name = app.bodies, "ursula_write_backpressure_"
    yield _gauge(f"{name}active", "1 while bodies are turned away for want of room.", bodies.is_backed_up)
    yield _gauge(
        f"{name}bytes", "Bytes of bodies that are being read or wait to be stored.", bodies.held_bytes
    )
    yield _gauge(f"{name}limit_bytes", "How many of them there may be.", bodies.held_bytes_max)
    yield CounterMetricFamily(
        f"{name}rejections",
        "Requests that were turned away with 503 write_backpressure.",
        bodies.rejected_count,
    )


def _recovery(app: "App") -> Iterator[Metric]:
    node = app.node
    yield _gauge("ursula_rehydrate_complete", "1 once the log has been replayed.", node.recovered)
    yield _gauge(
        "ursula_rehydrate_progress_ratio",
        "How much of the log has been replayed, from 0 to 1.",
        node.progress,
    )
    yield _gauge(
        "ursula_rehydrate_seconds", "How long the replay took, or has taken so far.", node.recovery_seconds
    )


def _appends(statuses: list[GroupStatus]) -> Iterator[Metric]:
    messages = CounterMetricFamily(
        "ursula_append_messages", "Messages that became durable.", labels=("group",)
    )
    body_bytes = CounterMetricFamily(
        "ursula_append_bytes", "Bytes of the bodies they came in.", labels=("group",)
    )
    commands = HistogramMetricFamily(
        "ursula_append_batch_commands", "Commands in a log entry.", labels=("group",)
    )
    entry_bytes = HistogramMetricFamily(
        "ursula_append_batch_bytes", "Bytes of a log entry.", labels=("group",)
    )
    for group in statuses:
        labels = (str(group.number),)
        messages.add_metric(labels, group.append_messages)
        body_bytes.add_metric(labels, group.append_bytes)
        commands.add_metric(labels, _buckets(group.batch_commands), group.batch_commands.total)
        entry_bytes.add_metric(labels, _buckets(group.batch_bytes), group.batch_bytes.total)
    yield from (messages, body_bytes, commands, entry_bytes)


def _logs(statuses: list[GroupStatus]) -> Iterator[Metric]:
    tail = _by_group("ursula_log_tail_position", "Position of the last durable entry.")
    applied = _by_group("ursula_log_applied_position", "Position of the last applied entry.")
    pending = _by_group("ursula_log_pending_commands", "Commands that are not yet durable and applied.")
    size = _by_group("ursula_log_size_bytes", "Bytes of all entries that are kept.")
    segments = _by_group("ursula_log_segments", "Segment files.")
    failures = CounterMetricFamily(
        "ursula_log_failures",
        "Entries that the log did not take: certainly (unavailable), or perhaps (unknown).",
        labels=("group", "kind"),
    )
    syncs = HistogramMetricFamily(
        "ursula_log_sync_duration_seconds", "Time that the disk took to sync an entry.", labels=("group",)
    )
    for group in statuses:
        labels = (str(group.number),)
        tail.add_metric(labels, group.tail)
        applied.add_metric(labels, group.applied)
        pending.add_metric(labels, group.pending_commands)
        size.add_metric(labels, group.log_bytes)
        failures.add_metric((*labels, "unavailable"), group.entries_unavailable)
        failures.add_metric((*labels, "unknown"), group.entries_unknown)
        if group.log_segment_count is not None:
            segments.add_metric(labels, group.log_segment_count)
        if group.sync_seconds is not None:
            syncs.add_metric(labels, _buckets(group.sync_seconds), group.sync_seconds.total)
    found: tuple[Metric, ...] = (tail, applied, pending, size, segments, failures, syncs)
    yield from (family for family in found if family.samples)


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value)


def _by_group(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=("group",))


def _buckets(tally: Tally) -> list[tuple[str, float]]:
    """The counts as Prometheus has them: of all values up to each bound."""
    bounds = [*map(floatToGoString, tally.bounds), "+Inf"]
    return list(zip(bounds, accumulate(tally.counts), strict=True))
