"""The cold tier as rows of the table use it: servers that flush or do not, and what lies in their store."""

import time

from .client import ask, get
from .failure import Failed
from .servers import OURS, Server

FLUSH_SECONDS_MAX = 300.0
DROP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05
MERGE_SECONDS_MAX = 120.0
QUIET_SECONDS = 3.0

NEVER_FLUSHED = OURS.with_settings(
    cold__flush_size="16GiB", cold__flush_interval="24h", cold__max_hot_bytes="32GiB"
)
"""Everything stays in memory and in the log."""
UNCACHED = OURS.with_settings(cold__cache_bytes="0", cold__max_hot_bytes="4GiB")
"""Flushed as by default, and every read of what was flushed goes to the store."""


def flush(server: Server) -> None:
    """Move everything that is in memory into the store, and wait until memory is free of it."""
    ask(server, "POST", "/cluster/flush", FLUSH_SECONDS_MAX)
    deadline = time.monotonic() + DROP_SECONDS_MAX
    while get(server, "/cluster/hot-cold-stats").json()["hot_bytes"]:
        if time.monotonic() > deadline:
            raise Failed(f"something was still in memory {DROP_SECONDS_MAX:.0f} s after a flush")
        time.sleep(POLL_SECONDS)


def rest(server: Server) -> None:
    """Wait until neighbouring segments are merged, so that nobody works beside the reader."""
    deadline, before, since = time.monotonic() + MERGE_SECONDS_MAX, -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise Failed(f"segments were still being merged after {MERGE_SECONDS_MAX:.0f} s")
        now = get(server, "/cluster/hot-cold-stats").json()["segments"]
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(POLL_SECONDS)


def fetched_bytes(server: Server) -> float:
    """How much was read from the store so far."""
    return _metric(server, "ursula_cold_fetched_bytes_total")


def flush_count(server: Server) -> float:
    """How many flushes came to their end so far."""
    return _metric(server, "ursula_cold_flushes_total")


def segment_bytes(server: Server) -> float:
    """The size of the files that hold what was flushed."""
    return _metric(server, "ursula_cold_segment_bytes")


def _metric(server: Server, name: str) -> float:
    lines = get(server, "/metrics").body.decode().splitlines()
    values = [float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    if not values:
        raise Failed(f"the server has no metric {name}")
    return sum(values)
