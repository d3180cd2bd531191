"""The log of a cluster, kept by etcd."""
