"""A node's member of the etcd cluster: its program, its process, its certificates, and how it joins."""
