"""The metrics of a node, as families of Prometheus. `cold_metrics` and `cluster_metrics` have the others.

Every component keeps its own counters as plain numbers; they become families when a scrape asks for them.
A family that would be meaningless is omitted: a log in memory has no syncs.
"""

import platform
from collections.abc import Iterator
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
from prometheus_client.utils import floatToGoString

from ...engine.status.cold_status import ColdStatus
from ...engine.status.group_status import GroupStatus
from ...engine.status.hot_bytes import HotTotals
from ...histogram import Histogram
from ..wire.server import WireServer
from .request_stats import LIVE, RequestStats

if TYPE_CHECKING:
    from ..services import Services

LIVE_KINDS = ("long_poll", "sse")


def gauge(name: str, documentation: str, value: float) -> Metric:
    """A gauge of the whole node."""
    return GaugeMetricFamily(name, documentation, value)


def by_group(name: str, documentation: str) -> GaugeMetricFamily:
    """A gauge that every group has."""
    return GaugeMetricFamily(name, documentation, labels=("group",))


def histogram_buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """The counts as Prometheus needs them: cumulative, for each bound."""
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def process_families(wire: WireServer) -> Iterator[Metric]:
    """The families of a process that listens, whether it has a node or not."""
    yield InfoMetricFamily(
        "ursula_build",
        "The version of the server.",
        {"version": version("ursula"), "python": platform.python_version()},
    )
    yield from _connections(wire)


def node_families(services: "Services", hot: HotTotals) -> Iterator[Metric]:
    """The families of the node itself, as of now."""
    yield from process_families(services.wire)
    yield from _requests(services.stats)
    yield from _live(services)
    statuses = services.node.statuses()
    yield from _backpressure(services, services.node.cold_statuses())
    yield from _recovery(services)
    yield from _appends(statuses)
    yield from _logs(statuses)
    yield gauge(
        "ursula_keeper",
        "1 while this node is the keeper, which flushes, merges and collects garbage.",
        services.node.is_keeper,
    )
    yield gauge("ursula_buckets", "Buckets.", sum(group.bucket_count for group in statuses))
    yield gauge(
        "ursula_streams",
        "Streams, including deleted ones that forks still need.",
        sum(group.stream_count for group in statuses),
    )
    yield gauge("ursula_hot_bytes", "Bytes of messages and events that are held in memory.", hot.hot_bytes)


def _requests(stats: RequestStats) -> Iterator[Metric]:
    labels = ("route", "method", "status")
    counts = CounterMetricFamily("ursula_http_requests", "Answered requests.", labels=labels)
    latencies = HistogramMetricFamily(
        "ursula_http_request_duration_seconds",
        "Time from the head of a request to its response, except for live reads, which wait on purpose.",
        labels=labels,
    )
    for (route, method, status), latency in sorted(stats.latencies.items()):
        values = (route, method, str(status))
        counts.add_metric(values, latency.count)
        if route not in LIVE:
            latencies.add_metric(values, histogram_buckets(latency), latency.total)
    yield counts
    yield latencies


def _connections(wire: WireServer) -> Iterator[Metric]:
    yield gauge("ursula_http_connections", "Open connections.", wire.connection_count)
    yield gauge(
        "ursula_http_unread_bytes", "Bytes of responses that clients have not read yet.", wire.unread_bytes
    )
    yield CounterMetricFamily(
        "ursula_http_slow_clients_ended",
        "Connections that were closed because their clients left too much unread.",
        wire.clients_ended,
    )


def _live(services: "Services") -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "ursula_live_connections", "Requests that wait for something new.", labels=("kind",)
    )
    found = services.live.count_by_kind()
    for kind in LIVE_KINDS:
        connections.add_metric((kind,), found[kind])
    yield connections
    yield gauge(
        "ursula_live_watchers",
        "Callbacks for changes; all SSE connections of a stream share one.",
        sum(group.watcher_count for group in services.node.statuses()),
    )
    yield CounterMetricFamily(
        "ursula_live_sse_bytes", "Bytes sent as server-sent events.", services.stats.sse_bytes
    )


def _backpressure(services: "Services", groups: list[ColdStatus]) -> Iterator[Metric]:
    """The two limits that reject writes: on bodies in flight, and on bytes that are not yet in the store."""
    name, labels = "ursula_write_backpressure_", ("limit",)
    active = GaugeMetricFamily(
        f"{name}active", "1 while writes are rejected because the limit is reached.", labels=labels
    )
    used = GaugeMetricFamily(f"{name}bytes", "Bytes that count against the limit.", labels=labels)
    limit = GaugeMetricFamily(f"{name}limit_bytes", "Bytes that the limit allows.", labels=labels)
    rejections = CounterMetricFamily(
        f"{name}rejections", "Requests that were rejected with 503 write_backpressure.", labels=labels
    )
    bodies, hot = services.bodies, ("max_hot_bytes",)
    active.add_metric(hot, any(group.is_full for group in groups))
    used.add_metric(hot, sum(group.held_bytes for group in groups))
    limit.add_metric(hot, services.node.hot_bytes_max)
    rejections.add_metric(hot, sum(group.rejected_count for group in groups))
    inflight = ("inflight_bytes",)
    active.add_metric(inflight, bodies.is_backed_up)
    used.add_metric(inflight, bodies.held_bytes)
    limit.add_metric(inflight, bodies.held_bytes_max)
    rejections.add_metric(inflight, bodies.rejected_count)
    yield from (active, used, limit, rejections)


def recovery_family(recovered: bool) -> Metric:
    """Whether the node has replayed its log."""
    return gauge("ursula_rehydrate_complete", "1 once the log has been replayed.", recovered)


def _recovery(services: "Services") -> Iterator[Metric]:
    node = services.node
    yield recovery_family(node.recovered)
    yield gauge(
        "ursula_rehydrate_progress_ratio",
        "Replayed fraction of the log, from 0 to 1.",
        node.progress,
    )
    yield gauge(
        "ursula_rehydrate_seconds",
        "Duration of the replay, up to now if it has not ended.",
        node.recovery_seconds,
    )


def _appends(statuses: list[GroupStatus]) -> Iterator[Metric]:
    messages = CounterMetricFamily(
        "ursula_append_messages", "Messages that became durable.", labels=("group",)
    )
    body_bytes = CounterMetricFamily(
        "ursula_append_bytes", "Bytes of the request bodies with these messages.", labels=("group",)
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
        commands.add_metric(labels, histogram_buckets(group.batch_commands), group.batch_commands.total)
        entry_bytes.add_metric(labels, histogram_buckets(group.batch_bytes), group.batch_bytes.total)
    yield from (messages, body_bytes, commands, entry_bytes)


def _logs(statuses: list[GroupStatus]) -> Iterator[Metric]:
    tail = by_group("ursula_log_tail_position", "Position of the last durable entry.")
    applied = by_group("ursula_log_applied_position", "Position of the last applied entry.")
    pending = by_group("ursula_log_pending_commands", "Commands that are not yet durable and applied.")
    size = by_group("ursula_log_size_bytes", "Bytes of all entries in the log.")
    ahead = by_group(
        "ursula_log_clock_ahead_seconds", "How far the time of the log is ahead of the machine's clock."
    )
    disagrees = by_group(
        "ursula_log_disagreement", "1 if the node must not serve the group, since other nodes contradict it."
    )
    segments = by_group("ursula_log_segments", "Segment files of the log.")
    failures = CounterMetricFamily(
        "ursula_log_failures",
        "Entries that were not written (unavailable), or that may not have been (unknown).",
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
        ahead.add_metric(labels, group.clock_ahead_seconds)
        disagrees.add_metric(labels, group.disagreement is not None)
        failures.add_metric((*labels, "unavailable"), group.entries_unavailable)
        failures.add_metric((*labels, "unknown"), group.entries_unknown)
        if group.log_segment_count is not None:
            segments.add_metric(labels, group.log_segment_count)
        if group.sync_seconds is not None:
            syncs.add_metric(labels, histogram_buckets(group.sync_seconds), group.sync_seconds.total)
    found: tuple[Metric, ...] = (tail, applied, pending, size, ahead, disagrees, segments, failures, syncs)
    yield from (family for family in found if family.samples)
