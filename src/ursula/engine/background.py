"""Tasks that nothing awaits: each is kept alive until it ends, and an exception in one is logged."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """The background tasks of one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    def cancel(self) -> None:
        """Cancel all tasks that are still running."""
        for task in self._tasks:
            task.cancel()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until all have ended, but no longer than the timeout."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a background task failed: %s", task.get_coro(), exc_info=error)
