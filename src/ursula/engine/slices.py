"""Long work in small steps: between two of them everyone else goes on."""

import asyncio
import time

SLICE_SECONDS = 0.0005
"""Who waits for an answer waits for one of these at each step of it: two milliseconds made a flush felt."""

LATE_SLICE_SECONDS = 0.004
"""What may be felt, since those who write must wait for it anyway before long."""


class Turn:
    """Lets others go on when its time is up, for a while if what it does can wait."""

    def __init__(self, rest_seconds: float = 0.0, slice_seconds: float = SLICE_SECONDS) -> None:
        self._rest_seconds = rest_seconds
        self._slice_seconds = slice_seconds
        self._ends_at = time.perf_counter() + slice_seconds

    async def end(self) -> None:
        """The end of a step."""
        if time.perf_counter() > self._ends_at:
            await asyncio.sleep(self._rest_seconds)
            self._ends_at = time.perf_counter() + self._slice_seconds
