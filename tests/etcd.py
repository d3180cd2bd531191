"""The etcd to test with, and free ports for it."""

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path


def etcd_path() -> str:
    """The program that `make` unpacked, or the one that URSULA_TEST_ETCD names."""
    return os.environ.get("URSULA_TEST_ETCD") or str(Path(sys.prefix) / "etcd" / "usr" / "bin" / "etcd")


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses now."""
    with ExitStack() as sockets:
        found = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in found]


def is_free(port: int) -> bool:
    """Whether nobody uses a port on loopback now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
