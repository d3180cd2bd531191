"""Resident memory of a server: at rest, and the most that it held meanwhile."""

import time

from .process import Process

SETTLED_BYTES = 64 * 1024
SETTLE_SECONDS_MAX = 15


def settled(process: Process) -> int:
    """Resident memory once it no longer changes."""
    last = process.resident_bytes()
    for _ in range(SETTLE_SECONDS_MAX):
        time.sleep(1.5)
        now = process.resident_bytes()
        if abs(now - last) < SETTLED_BYTES:
            return now
        last = now
    return last
