"""GET /metrics: all metrics in the text format of Prometheus."""

import asyncio
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from ...engine.interface import ClusterApi
from ..exchange import Exchange
from ..wire.server import WireServer
from .cluster_metrics import cluster_families, load_family
from .cold_metrics import cold_families
from .metrics import node_families, process_families, recovery_family

HEADERS = [("content-type", CONTENT_TYPE_LATEST), ("cache-control", "no-store")]


async def get_metrics(exchange: Exchange) -> None:
    """GET on the metrics."""
    services = exchange.services
    hot = await services.node.hot_totals()
    metrics = [*node_families(services, hot), *cold_families(services.node, hot)]
    if services.cluster is not None:
        metrics += [*cluster_families(services.cluster), load_family(services.node.load_seconds)]
    exchange.reply(200, HEADERS, await asyncio.to_thread(render, metrics))


def metrics_before_joining(cluster: ClusterApi, wire: WireServer) -> bytes:
    """The metrics of a node that is not part of its cluster yet: it has no groups, and knows only etcd."""
    return render([*process_families(wire), recovery_family(False), *cluster_families(cluster)])


class CollectedMetrics(Collector):
    """Families that are already complete."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        return self._metrics


def render(metrics: Iterable[Metric]) -> bytes:
    """These families and those of the process, as text. Counting open files is slow: call it in a thread."""
    registry = CollectorRegistry()
    registry.register(CollectedMetrics(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
