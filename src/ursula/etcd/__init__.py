"""etcd as a client sees it: its members, the calls to them, and which of their failures mean what."""

import os

# A node starts its own etcd. gRPC would prepare every fork, and say on stderr that it cannot.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
