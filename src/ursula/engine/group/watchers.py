"""Watchers of streams and buckets, and which entries wake them.

A watcher of a stream is called once per log entry that touched the stream. A watcher of a bucket is called at
most once in `FEED_PAUSE_SECONDS`, since all streams of a bucket together may be busy. A follower that polls
watches only while a poll waits, so each poll that finds news asks `may_tell`.
"""

import asyncio
import logging
from collections.abc import Callable

from ...model.commands import AnyCommand, Append, StoreCommand
from ...model.outcomes import AnyOutcome, Appended, Ended, RowsIngested

FEED_PAUSE_SECONDS = 0.005

logger = logging.getLogger(__name__)

Watcher = Callable[[], None]


class Watchers:
    """Callbacks by stream incarnation, or by the key of a bucket."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Watcher, None]] = {}
        self._touched_buckets: dict[str, None] = {}
        self._pause: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def add(self, key: str, watcher: Watcher) -> None:
        """Call the watcher whenever the stream or the bucket changes."""
        self._by_key.setdefault(key, {})[watcher] = None

    def remove(self, key: str, watcher: Watcher) -> None:
        """Stop calling the watcher."""
        watchers = self._by_key.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._by_key[key]

    def may_tell(self, bucket: str) -> bool:
        """Whether a reader that is no watcher yet may have the news of a bucket at once.

        If not, the watchers of the bucket are called at the end of the pause.
        """
        if self._pause is None:
            self._begin_pause()
            return True
        self._touched_buckets[bucket] = None
        return False

    def wake(self, commands: list[AnyCommand], outcomes: list[AnyOutcome]) -> None:
        """An entry was applied: call the watchers of the streams and buckets that it touched."""
        touched: dict[str, None] = {}
        buckets, watched = self._touched_buckets, self._by_key
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, Append):
                buckets[command.bucket] = None
                if type(outcome) is Appended and outcome.incarnation in watched:
                    touched[outcome.incarnation] = None
                continue
            if not isinstance(command, StoreCommand):
                buckets[command.bucket] = None
            if isinstance(outcome, Ended):
                touched[outcome.incarnation] = None
            elif isinstance(outcome, RowsIngested):
                touched.update(dict.fromkeys(outcome.incarnations))
        for incarnation in touched:
            self._call(incarnation)
        if self._touched_buckets and self._pause is None:
            self._wake_buckets()

    def _wake_buckets(self) -> None:
        """Call the watchers of the touched buckets; those touched during the pause after it come next."""
        touched, self._touched_buckets = self._touched_buckets, {}
        for bucket in touched:
            self._call(bucket_key(bucket))
        self._begin_pause()

    def _begin_pause(self) -> None:
        self._pause = asyncio.get_running_loop().call_later(FEED_PAUSE_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self._touched_buckets:
            self._wake_buckets()

    def _call(self, key: str) -> None:
        for watcher in tuple(self._by_key.get(key, ())):
            try:
                watcher()
            except Exception:
                logger.exception("a watcher failed")


def bucket_key(bucket: str) -> str:
    """The key under which a bucket is watched; no incarnation of a stream looks like it."""
    return f"/{bucket}"
