"""The families `ursula_cold_*`: what is in the store, how it gets there, and how much of it is cached."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ...engine.interface import NodeApi
from ...engine.status.cold_status import ColdStatus, UpkeepStatus
from ...engine.status.hot_bytes import HotTotals
from .metrics import by_group, gauge, histogram_buckets


def cold_families(node: NodeApi, hot: HotTotals) -> Iterator[Metric]:
    """All families of the store, as of now."""
    statuses = node.cold_statuses()
    yield from _flushes(statuses)
    yield from _manifests(node, statuses)
    yield from _objects(statuses)
    yield gauge(
        "ursula_cold_parked_streams",
        "Idle streams of which only the state row is in memory.",
        hot.parked_streams,
    )
    yield from _caches(node)
    yield from _upkeep(node.upkeep_status())


def _flushes(statuses: list[ColdStatus]) -> Iterator[Metric]:
    flushes = CounterMetricFamily("ursula_cold_flushes", "Completed flushes.", labels=("group",))
    failures = CounterMetricFamily(
        "ursula_cold_flush_failures", "Failed attempts to flush or to reach the store.", labels=("group",)
    )
    written = CounterMetricFamily(
        "ursula_cold_written_bytes", "Bytes that flushes wrote to the store.", labels=("group",)
    )
    durations = HistogramMetricFamily(
        "ursula_cold_flush_duration_seconds",
        "Time that a flush took, from the cut to the trimmed log.",
        labels=("group",),
    )
    for group in statuses:
        labels = (str(group.number),)
        flushes.add_metric(labels, group.flush_count)
        failures.add_metric(labels, group.failed_count)
        written.add_metric(labels, group.written_bytes)
        durations.add_metric(labels, histogram_buckets(group.flush_seconds), group.flush_seconds.total)
    yield from (flushes, failures, written, durations)


def _manifests(node: NodeApi, statuses: list[ColdStatus]) -> Iterator[Metric]:
    position = by_group("ursula_cold_manifest_position", "Position of the newest manifest; 0 if none.")
    age = by_group("ursula_cold_manifest_age_seconds", "Age of its cut; 0 if none.")
    backlog = by_group("ursula_cold_backlog_age_seconds", "Age of the oldest data that is not yet flushed.")
    for group in statuses:
        labels = (str(group.number),)
        made_at = node.now() if group.manifest_at is None else group.manifest_at
        position.add_metric(labels, group.manifest_position)
        age.add_metric(labels, max(0, node.now() - made_at) / 1_000_000)
        backlog.add_metric(labels, group.backlog_seconds)
    yield from (position, age, backlog)
    yield gauge(
        "ursula_cold_flush_interval_seconds",
        "Time after which data is flushed.",
        node.flush_interval_seconds,
    )


def _objects(statuses: list[ColdStatus]) -> Iterator[Metric]:
    segments = by_group("ursula_cold_segments", "Live segments.")
    segment_bytes = by_group("ursula_cold_segment_bytes", "Bytes of the live segments.")
    payload_bytes = by_group("ursula_cold_payload_bytes", "Bytes of the messages in them.")
    recent_bytes = by_group(
        "ursula_cold_recent_bytes",
        "Bytes that are in the store and, because they are recent, also in memory.",
    )
    state_bytes = by_group("ursula_cold_state_bytes", "Bytes of the state objects of the newest manifest.")
    ended = by_group("ursula_cold_ended_streams", "Deleted or expired streams that can be undeleted.")
    for group in statuses:
        labels = (str(group.number),)
        segments.add_metric(labels, group.segment_count)
        segment_bytes.add_metric(labels, group.segment_bytes)
        payload_bytes.add_metric(labels, group.payload_bytes)
        recent_bytes.add_metric(labels, group.recent_bytes)
        state_bytes.add_metric(labels, group.state_bytes)
        ended.add_metric(labels, group.ended_streams)
    yield from (segments, segment_bytes, payload_bytes, recent_bytes, state_bytes, ended)


def _upkeep(status: UpkeepStatus) -> Iterator[Metric]:
    yield CounterMetricFamily("ursula_cold_fetches", "Reads of a part of a segment.", status.fetch_count)
    yield CounterMetricFamily("ursula_cold_fetched_bytes", "Bytes of these reads.", status.fetched_bytes)
    yield CounterMetricFamily(
        "ursula_cold_merged_segments", "Segments that were merged into larger ones.", status.merged_count
    )
    yield CounterMetricFamily("ursula_cold_merged_bytes", "Bytes of these segments.", status.merged_bytes)
    yield CounterMetricFamily(
        "ursula_cold_collected_objects", "Objects that garbage collection deleted.", status.collected_count
    )
    yield CounterMetricFamily(
        "ursula_cold_collected_bytes", "Bytes of these objects.", status.collected_bytes
    )


def _caches(node: NodeApi) -> Iterator[Metric]:
    name, labels = "ursula_cold_cache_", ("cache",)
    held = GaugeMetricFamily(f"{name}bytes", "Bytes of fetched data in the cache.", labels=labels)
    limit = GaugeMetricFamily(f"{name}limit_bytes", "Capacity of the cache.", labels=labels)
    hits = CounterMetricFamily(f"{name}hits", "Reads that the cache answered.", labels=labels)
    misses = CounterMetricFamily(f"{name}misses", "Reads that had to fetch from the store.", labels=labels)
    evictions = CounterMetricFamily(
        f"{name}evictions", "Items that were evicted to make room for others.", labels=labels
    )
    for kind, cache in node.cache_statuses().items():
        held.add_metric((kind,), cache.held_bytes)
        limit.add_metric((kind,), cache.bytes_max)
        hits.add_metric((kind,), cache.hits)
        misses.add_metric((kind,), cache.misses)
        evictions.add_metric((kind,), cache.evicted)
    yield from (held, limit, hits, misses, evictions)
