"""A node: which groups there are, where they run, and which of them owns a bucket.

The only place that knows how many groups there are.
"""

import asyncio
import gc
import zlib

from ..log.file import FileLog
from ..log.memory import MemoryLog
from .clock import Clock, system_clock
from .folder import DataFolder
from .group import Group

YOUNG_COLLECTION_SECONDS = 1.0
RECOVERY_LOOK_SECONDS = 0.01


class Node:
    """The groups of this process. `folder` is None for a node that keeps everything in memory only."""

    def __init__(
        self, folder: DataFolder | None, log_segment_bytes: int, clock: Clock = system_clock
    ) -> None:
        self._folder = folder
        self._log_segment_bytes = log_segment_bytes
        self._clock = clock
        self.generation = folder.identity.generation if folder else 1
        self.group_count = folder.identity.groups if folder else 1
        self.groups: list[Group] = []
        self.recovered = False  # whether every group has replayed its log

    async def run(self) -> None:
        """Open the logs, replay them and serve, until `stop`. Raises what made that impossible."""
        for number in range(self.group_count):
            log = await self._open_log(number)
            self.groups.append(Group(number, log, self._clock, log.first))
        await asyncio.gather(*(group.run() for group in self.groups), self._watch_recovery())

    async def stop(self) -> None:
        """Finish what was proposed and close the logs."""
        for group in self.groups:
            await group.stop()
        if self._folder is not None:
            self._folder.close()

    def group_of(self, bucket: str) -> Group:
        """The group that owns a bucket."""
        if self.group_count == 1:
            return self.groups[0]
        return self.groups[zlib.crc32(bucket.encode()) % self.group_count]

    @property
    def progress(self) -> float:
        """How much of all logs has been replayed, from 0 to 1."""
        return sum(group.progress for group in self.groups) / self.group_count

    async def _open_log(self, number: int) -> FileLog | MemoryLog:
        if self._folder is None:
            return MemoryLog(generation=self.generation)
        path = self._folder.log_path(number)
        return await FileLog.open(path, generation=self.generation, segment_bytes=self._log_segment_bytes)

    async def _watch_recovery(self) -> None:
        """Serve once all is replayed, keep that out of garbage collection, and collect only young objects."""
        gc.disable()
        while not all(group.recovered for group in self.groups):
            await asyncio.sleep(RECOVERY_LOOK_SECONDS)
        gc.collect()
        gc.freeze()
        self.recovered = True
        while True:
            await asyncio.sleep(YOUNG_COLLECTION_SECONDS)
            gc.collect(1)
