"""The families `ursula_raft_*`: etcd as this node sees it. A single node has none of them."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ...engine.interface import ClusterApi
from ...histogram import Histogram
from .metrics import gauge, histogram_buckets


def cluster_families(cluster: ClusterApi) -> Iterator[Metric]:
    """All families of the cluster, as of now."""
    membership = cluster.membership
    yield gauge("ursula_raft_has_leader", "1 while etcd has a leader.", cluster.leader is not None)
    yield gauge("ursula_raft_is_leader", "1 while the etcd member of this node leads.", cluster.is_leader)
    yield gauge("ursula_raft_term", "How often a leader was elected.", cluster.term)
    yield gauge("ursula_raft_voters", "Members that vote.", len(membership["voters"]))
    yield gauge("ursula_raft_learners", "Members that only follow.", len(membership["learners"]))
    yield from _members(cluster)
    yield from _calls(cluster)


def load_family(seconds: Histogram) -> Metric:
    """The times to load the state of a group, as a family."""
    loads = HistogramMetricFamily(
        "ursula_raft_snapshot_load_duration_seconds",
        "Time to load the state from the store: at the start, and whenever the node fell behind the log.",
    )
    loads.add_metric((), histogram_buckets(seconds), seconds.total)
    return loads


def _members(cluster: ClusterApi) -> Iterator[Metric]:
    index = GaugeMetricFamily(
        "ursula_raft_index", "Last entry of etcd's log that the member of a node has.", labels=("node",)
    )
    applied = GaugeMetricFamily(
        "ursula_raft_applied_index", "Last entry that the member of a node has applied.", labels=("node",)
    )
    size = GaugeMetricFamily(
        "ursula_raft_database_bytes", "Size of the database of a node's member.", labels=("node",)
    )
    for node, member in sorted(cluster.raft_members.items()):
        index.add_metric((str(node),), member.index)
        applied.add_metric((str(node),), member.applied_index)
        size.add_metric((str(node),), member.database_bytes)
    yield from (index, applied, size)


def _calls(cluster: ClusterApi) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "ursula_raft_rpc_requests",
        "Calls to an etcd member: answered, rejected, or failed without an answer.",
        labels=("member", "outcome"),
    )
    in_flight = GaugeMetricFamily("ursula_raft_rpc_in_flight", "Calls under way.", labels=("member",))
    durations = HistogramMetricFamily(
        "ursula_raft_rpc_duration_seconds", "Time that a call to an etcd member took.", labels=("member",)
    )
    for calls in cluster.member_calls:
        labels = (calls.address,)
        requests.add_metric((*labels, "answered"), calls.answered)
        requests.add_metric((*labels, "rejected"), calls.rejected)
        requests.add_metric((*labels, "failed"), calls.failed)
        in_flight.add_metric(labels, calls.in_flight)
        durations.add_metric(labels, histogram_buckets(calls.seconds), calls.seconds.total)
    yield from (requests, in_flight, durations)
    yield gauge(
        "ursula_raft_rpc_last_success_age_seconds",
        "Time since a majority of etcd last answered this node.",
        cluster.silent_seconds,
    )
