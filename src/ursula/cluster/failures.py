"""Why a node cannot have a member of the cluster."""


class ClusterRefused(Exception):
    """A setting or the machine must change before the node can start."""


class EtcdFailed(Exception):
    """The node's own etcd has ended although it should run."""
