"""A node's part in a cluster: its etcd, the keeper's lease, certificates, clocks, and the nodes' reports."""
