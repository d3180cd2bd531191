"""A node: which groups there are, where they run, and which of them owns a bucket.

The only place that knows how many groups there are.
"""

import asyncio
import gc
import logging
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Coroutine
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..cold.blobs import Blobs
from ..cold.ulid import milliseconds_of
from ..log.file import FileLog
from ..log.memory import MemoryLog
from ..model.outcomes import BucketDescription
from .clock import Clock, system_clock
from .folder import DataFolder
from .group import Group
from .status import GroupStatus
from .survey import Survey, hot_bytes, merged, survey

YOUNG_COLLECTION_SECONDS = 1.0
RECOVERY_LOOK_SECONDS = 0.01
RELEASED_BLOB_SECONDS = 60.0
"""How long a blob stays after the last stream that showed it: someone may be reading it."""
UNNAMED_BLOB_SECONDS = 24 * 3600.0
"""How long a blob stays that the log never came to name."""

logger = logging.getLogger(__name__)


class Node:
    """The groups of this process. `folder` is None for a node that keeps everything in memory only."""

    def __init__(
        self, folder: DataFolder | None, log_segment_bytes: int, clock: Clock = system_clock
    ) -> None:
        self._folder = folder
        self._log_segment_bytes = log_segment_bytes
        self._clock = clock
        self.cluster = folder.identity.cluster if folder else secrets.token_hex(8)
        self.generation = folder.identity.generation if folder else 1
        self.feed_incarnation = f"{self.cluster}-{self.generation}"
        self.group_count = folder.identity.groups if folder else 1
        self.groups: list[Group] = []
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="ursula-")
        root = folder.path if folder else Path(self._temporary.name)  # type: ignore[union-attr]
        self.blobs = Blobs(root / "cold")
        self.scratch = root / "tmp"
        self._tasks: set[asyncio.Task[None]] = set()
        self.recovered = False  # whether every group has replayed its log
        self._began_at = time.monotonic()
        self._recovered_at: float | None = None
        self._surveying: asyncio.Task[Survey] | None = None

    async def run(self) -> None:
        """Open the logs, replay them and serve, until `stop`. Raises what made that impossible."""
        await asyncio.to_thread(self._clear_scratch)
        for number in range(self.group_count):
            log = await self._open_log(number)
            self.groups.append(Group(number, log, self._clock, log.first, self._remove_blobs))
        await asyncio.gather(*(group.run() for group in self.groups), self._watch_recovery())

    async def stop(self) -> None:
        """Finish what was proposed and close the logs."""
        for group in self.groups:
            await group.stop()
        if self._folder is not None:
            self._folder.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def group_of(self, bucket: str) -> Group:
        """The group that owns a bucket."""
        if self.group_count == 1:
            return self.groups[0]
        return self.groups[zlib.crc32(bucket.encode()) % self.group_count]

    @property
    def progress(self) -> float:
        """How much of all logs has been replayed, from 0 to 1."""
        return sum(group.progress for group in self.groups) / self.group_count

    def now(self) -> int:
        """The time as this node sees it, in microseconds since 1970."""
        return self._clock()

    @property
    def recovery_seconds(self) -> float:
        """How long the start took, or has taken so far."""
        return (self._recovered_at or time.monotonic()) - self._began_at

    def statuses(self) -> list[GroupStatus]:
        """What an operator may see of every group; none are there before their logs are open."""
        return [group.status() for group in self.groups]

    def list_buckets(self, after: str, count: int) -> list[BucketDescription]:
        """The next buckets by name."""
        found = [group.state.list_buckets(after, count) for group in self.groups]
        return list(islice(merge(*found, key=attrgetter("name")), count))

    async def hot_bytes(self) -> int:
        """All bytes in memory."""
        return sum([await hot_bytes(group.state) for group in self.groups])

    async def survey(self) -> Survey:
        """Where the bytes are. Those who ask while it is being found out get the same answer."""
        if self._surveying is None or self._surveying.done():
            self._surveying = asyncio.create_task(self._survey())
        return await asyncio.shield(self._surveying)

    async def _survey(self) -> Survey:
        return merged([await survey(group.state) for group in self.groups])

    async def _open_log(self, number: int) -> FileLog | MemoryLog:
        if self._folder is None:
            return MemoryLog(generation=self.generation)
        path = self._folder.log_path(number)
        return await FileLog.open(path, generation=self.generation, segment_bytes=self._log_segment_bytes)

    def _clear_scratch(self) -> None:
        """Remove what a killed process left behind."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True, exist_ok=True)
        _tidy(self.blobs.forget_unfinished)

    def _remove_blobs(self, keys: list[str]) -> None:
        """Remove blobs that no stream shows any more, once nobody reads them."""

        async def remove() -> None:
            await asyncio.sleep(RELEASED_BLOB_SECONDS)
            for key in keys:
                await asyncio.to_thread(_tidy, self.blobs.remove, key)

        if self.recovered:  # those of a replay may be shown again further on
            self._spawn(remove())

    def forget_blob(self, key: str) -> None:
        """Remove a blob that was stored for nothing: it did not come to be shown."""
        self._spawn(asyncio.to_thread(_tidy, self.blobs.remove, key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remove_unnamed_blobs(self, named: set[str]) -> None:
        """Remove what was stored and never committed, or released by a process that was killed."""
        horizon = (time.time() - UNNAMED_BLOB_SECONDS) * 1000
        for key in self.blobs.keys():  # noqa: SIM118
            if key not in named and milliseconds_of(key.rpartition("/")[2]) < horizon:
                logger.info("removing a blob that nothing names: %s", key)
                _tidy(self.blobs.remove, key)

    async def _watch_recovery(self) -> None:
        """Serve once all is replayed, keep that out of garbage collection, and collect only young objects."""
        gc.disable()
        while not all(group.recovered for group in self.groups):
            await asyncio.sleep(RECOVERY_LOOK_SECONDS)
        named = {key for group in self.groups for key in group.state.blobs}
        await asyncio.to_thread(self._remove_unnamed_blobs, named)
        gc.collect()
        gc.freeze()
        self.recovered = True
        self._recovered_at = time.monotonic()
        while True:
            await asyncio.sleep(YOUNG_COLLECTION_SECONDS)
            gc.collect(1)


def _tidy(remove: Callable[..., None], *arguments: str) -> None:
    """Remove what is only in the way. What cannot be removed now is at a later start: nobody waits for it."""
    try:
        remove(*arguments)
    except OSError as error:
        logger.warning("something that nobody needs could not be removed: %s", error)
