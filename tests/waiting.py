"""Waiting for something that another process does."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True
