"""Resident memory of a server: at rest, and as it changes meanwhile."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .process import Process

SETTLED_BYTES = 64 * 1024
SETTLE_SECONDS_MAX = 15
SAMPLE_SECONDS = 0.005


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


class Span(NamedTuple):
    """Resident memory when something began, and the most of it until it ended."""

    before: int
    peak: int


class Samples:
    """Resident memory, looked at often, until told to stop."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._taken: list[tuple[float, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def last(self, seconds: float) -> Span:
        """What the last seconds were."""
        end = time.monotonic()
        within = [size for at, size in self._taken if at >= end - seconds]
        if not within:
            within = [self._process.resident_bytes()]
        return Span(within[0], max(within))

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self._taken.append((time.monotonic(), self._process.resident_bytes()))


@contextmanager
def sampled(process: Process) -> Iterator[Samples]:
    """Look at the memory of a process until the block ends."""
    samples = Samples(process)
    try:
        yield samples
    finally:
        samples.stop()
