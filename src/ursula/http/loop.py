"""An event loop that is woken once for many calls from other threads.

Granian's threads call `call_soon_threadsafe` twice per request, and waking the loop is the dearest
part of that: `make bench` has a bare server with this loop and one without.
"""

from asyncio import Handle
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

import uvloop


class CoalescingLoop(uvloop.Loop):
    """uvloop's loop, but calls from other threads that come before it wakes share one wake-up."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...], Context | None]] = deque()
        self._woken = False

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle | None:
        """Call back on the loop soon. There is nothing to cancel, so no handle is returned."""
        self._calls.append((callback, args, context))
        if not self._woken:
            self._woken = True
            super().call_soon_threadsafe(self._run_calls)
        return None

    def _run_calls(self) -> None:
        self._woken = False  # first, so that a call which comes during the run wakes the loop again
        calls = self._calls
        for _ in range(len(calls)):
            callback, args, context = calls.popleft()
            try:
                if context is None:
                    callback(*args)
                else:
                    context.run(callback, *args)
            except Exception as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error})
