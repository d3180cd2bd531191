"""Long work in small steps: between two of them everyone else goes on."""

import asyncio
import time

SLICE_SECONDS = 0.0005
"""Who waits for an answer waits for one of these at each step of it: two milliseconds made a flush felt."""


class Turn:
    """Lets others go on when its time is up, for a while if what it does can wait."""

    def __init__(self, rest_seconds: float = 0.0) -> None:
        self._rest_seconds = rest_seconds
        self._ends_at = time.perf_counter() + SLICE_SECONDS

    async def end(self) -> None:
        """The end of a step."""
        if time.perf_counter() > self._ends_at:
            await asyncio.sleep(self._rest_seconds)
            self._ends_at = time.perf_counter() + SLICE_SECONDS
