"""Who waits for which stream. A watcher is called once per log entry that touched its stream."""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

Watcher = Callable[[], None]


class Watchers:
    """Callbacks by stream incarnation."""

    def __init__(self) -> None:
        self._by_stream: dict[str, dict[Watcher, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_stream)

    def __len__(self) -> int:
        return sum(map(len, self._by_stream.values()))

    def add(self, incarnation: str, watcher: Watcher) -> None:
        """Call the watcher whenever something happens to the stream."""
        self._by_stream.setdefault(incarnation, {})[watcher] = None

    def remove(self, incarnation: str, watcher: Watcher) -> None:
        """Call it no more."""
        watchers = self._by_stream.get(incarnation)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._by_stream[incarnation]

    def wake(self, incarnation: str) -> None:
        """Something happened to the stream."""
        for watcher in tuple(self._by_stream.get(incarnation, ())):
            try:
                watcher()
            except Exception:
                logger.exception("a watcher failed")
