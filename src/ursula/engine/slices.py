"""Long work in small steps: between two of them everyone else goes on."""

import asyncio
import time

SLICE_SECONDS = 0.0005
"""Who waits for an answer waits for one of these at each step of it: two milliseconds made a flush felt."""


class Turn:
    """Lets others go on when its time is up."""

    def __init__(self) -> None:
        self._ends_at = time.perf_counter() + SLICE_SECONDS

    async def end(self) -> None:
        """The end of a step."""
        if time.perf_counter() > self._ends_at:
            await asyncio.sleep(0)
            self._ends_at = time.perf_counter() + SLICE_SECONDS
