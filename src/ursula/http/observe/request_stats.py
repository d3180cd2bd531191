"""Counts and latencies of responses: updated for every request, so they are just numbers in lists.

A route is a short fixed word, never a path: a label in Prometheus should have few values.
"""

from bisect import bisect_left

from ...histogram import Histogram

LATENCY_SECONDS = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)

STREAM = "stream"
STREAM_LONG_POLL = "stream_long_poll"
STREAM_SSE = "stream_sse"
FEED = "feed"
FEED_LONG_POLL = "feed_long_poll"
FEED_SSE = "feed_sse"
ATTRIBUTES = "attrs"
SNAPSHOT = "snapshot"
RETENTION = "retention"
BOOTSTRAP = "bootstrap"
APPEND_BATCH = "append_batch"
BUCKET = "bucket"
STREAMS = "streams"
HEALTH = "health"
METRICS = "metrics"
CLUSTER = "cluster"
PREFLIGHT = "preflight"
UNKNOWN = "unknown"

LIVE = frozenset((STREAM_LONG_POLL, STREAM_SSE, FEED_LONG_POLL, FEED_SSE))
"""Requests that wait on purpose: they are counted, but their latency would be meaningless."""

METHODS = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"))
OTHER_METHOD = "other"

Key = tuple[str, str, int]


class RequestStats:
    """The latencies of responses by route, method and status."""

    def __init__(self) -> None:
        self.latencies: dict[Key, Histogram] = {}
        self.sse_bytes = 0

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response."""
        latency = self.latencies.get((route, method, status)) or self._latency(route, method, status)
        latency.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        latency.total += seconds

    def _latency(self, route: str, method: str, status: int) -> Histogram:
        """A new histogram for the first response of its kind. Unknown methods share one."""
        key = (route, method if method in METHODS else OTHER_METHOD, status)
        return self.latencies.setdefault(key, Histogram(LATENCY_SECONDS))
