"""The kinds of metrics that we have, in fewer words."""

from itertools import accumulate

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from ...histogram import Histogram


def gauge(name: str, documentation: str, value: float) -> Metric:
    """A number of the whole node."""
    return GaugeMetricFamily(name, documentation, value)


def by_group(name: str, documentation: str) -> GaugeMetricFamily:
    """A number that every group has."""
    return GaugeMetricFamily(name, documentation, labels=("group",))


def histogram_buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """The counts as Prometheus has them: of all values up to each bound."""
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
