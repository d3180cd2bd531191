"""The clock, as an argument: the only place where the engine learns what time it is."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since 1970."""


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000
