"""The log on a local disk: a thread writes, and the event loop delivers entries once they are durable.

The loop owns everything that readers see (segments, tail, followers); the thread owns the end of the last
file. The loop talks to the thread through a queue, and the thread to the loop through `call_soon_threadsafe`.
Both preserve order: the loop learns of a segment before any entry in it, and of an entry only once it is
synced.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from weakref import WeakSet

from ursula.log.disk import REAL_DISK, Disk
from ursula.log.follower import Follower
from ursula.log.interface import (
    COUNTER_MASK,
    AppendFailed,
    AppendRetryable,
    AppendUnknown,
    EntriesTrimmed,
    Entry,
    LogDamaged,
    Measures,
    TakeEntry,
)
from ursula.log.recovery import recover
from ursula.log.segment import LogSegment
from ursula.log.segment_scan import RESTORE_HINT, SegmentScan
from ursula.log.writer import Writer

SEGMENT_BYTES = 64 * 1024 * 1024

_Waiting = tuple[bytes, asyncio.Future[int]]


class FileLog:
    """A log in a folder of segment files. Made by `open`, used on the event loop that opened it."""

    def __init__(
        self, disk: Disk, directory: str, segments: list[LogSegment], tail: int, writer: Writer
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._tail = tail
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._followers: WeakSet[Follower] = WeakSet()
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._trimming = asyncio.Lock()
        self._unwanted = 0
        self._closed = False
        writer.announce = self._announce
        self._thread = Thread(target=self._write_all, name="ursula-log", daemon=True)
        self._thread.start()

    @classmethod
    async def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        generation: int = 1,
        segment_bytes: int = SEGMENT_BYTES,
        applied: int = 0,
        disk: Disk = REAL_DISK,
    ) -> "FileLog":
        """Open the log in a folder, or begin a new one; LogDamaged if it is damaged or the wrong one.

        `applied` is a position that the log must have reached.
        """
        folder = os.fspath(directory)

        def start() -> tuple[list[LogSegment], int, Writer]:
            found = recover(disk, folder, generation, segment_bytes, applied)
            writer = Writer(disk, folder, generation, segment_bytes, found)
            try:
                writer.begin_if_sealed()
            except OSError:
                writer.close()
                raise
            return found.segments, found.position, writer

        segments, tail, writer = await asyncio.to_thread(start)
        return cls(disk, folder, segments, tail, writer)

    batch_bytes = 1024 * 1024
    entry_bytes_max: int | None = None
    space_problem: str | None = None

    @property
    def known_tail(self) -> int:
        """The position of the last synced entry, or the one before the first."""
        return self._tail

    @property
    def first(self) -> int:
        """The position before the first entry that is still in the log."""
        return self._segments[0].header.previous

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments, without the space reserved in the last one."""
        return sum(segment.length for segment in self._segments)

    @property
    def measures(self) -> Measures:
        """Its current extent and size, and the durations of its syncs."""
        return Measures(
            self.first, self._tail, self.size_bytes, len(self._segments), self._writer.sync_seconds
        )

    def append(self, payload: bytes) -> asyncio.Future[int]:
        """Make the payload durable; the future gets its position or an AppendFailed. It begins at once."""
        future: asyncio.Future[int] = self._loop.create_future()
        if self._closed:
            future.set_exception(AppendRetryable("the log is closed"))
        else:
            self._queue.put((payload, future))
        return future

    def follow(self, after: int, count: int | None = None, take: TakeEntry | None = None) -> Follower:
        """Entries after a position, then live ones; iterating raises EntriesTrimmed or LogDamaged."""
        follower = Follower(after, self._open_stored, take)
        self._followers.add(follower)
        if self._closed:
            follower.end()
        return follower

    async def tail(self) -> int:
        """The position of the last synced entry."""
        return self._tail

    async def protect(self, after: int) -> int:
        """Do nothing: the only node that reads the log is the one that trims it."""
        return self.first

    async def trim(self, upto: int) -> None:
        """Remove the segments whose entries are all at or below a position, except the last segment."""
        # Set before any file is removed, so that a reader that finds a file missing knows why.
        self._unwanted = max(self._unwanted, upto)
        async with self._trimming:
            while len(self._segments) > 1 and self._segments[1].header.previous <= upto:
                await asyncio.to_thread(self._remove, self._segments[0].path)
                del self._segments[0]

    async def close(self) -> None:
        """Write the queued entries, then close the files and end the followers."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        for follower in self._followers:
            follower.end()

    def _remove(self, path: str) -> None:
        # Each removal is durable before the next one: a crash must not leave a gap.
        with suppress(FileNotFoundError):
            self._disk.unlink(path)
        self._disk.sync_directory(self._directory)

    def _open_stored(self, after: int) -> Callable[[], Awaitable[list[Entry]]]:
        first = self.first
        entries = SegmentScan(self._disk, self._segments.copy(), after, self._tail)

        async def stored() -> list[Entry]:
            # A log that still begins with counter 0 was never trimmed.
            if after < first and first & COUNTER_MASK:
                raise EntriesTrimmed(after, first)
            try:
                return await asyncio.to_thread(entries.read)
            except FileNotFoundError as error:
                if after < self._unwanted:
                    raise EntriesTrimmed(after, self.first) from None
                where, problem = f"after position {after}", "the segment is gone"
                raise LogDamaged(error.filename, where, problem, RESTORE_HINT) from error

        return stored

    def _announce(self, segment: LogSegment) -> None:
        self._loop.call_soon_threadsafe(self._add_segment, segment)

    def _add_segment(self, segment: LogSegment) -> None:
        if self._segments[-1].path == segment.path:
            # Writing its first record failed, and the file was created again.
            self._segments.pop()
        self._segments.append(segment)

    def _write_all(self) -> None:
        # If the log was never closed, the loop may be gone, and nothing is left to notify.
        with suppress(RuntimeError):
            while (waiting := self._queue.get()) is not None:
                payload, future = waiting
                try:
                    entry = Entry(self._writer.append(payload), payload)
                except AppendFailed as failure:
                    self._loop.call_soon_threadsafe(self._fail, future, failure)
                except Exception as error:
                    self._writer.stop(repr(error))
                    self._loop.call_soon_threadsafe(self._fail, future, AppendUnknown(repr(error)))
                else:
                    self._loop.call_soon_threadsafe(self._land, future, entry, self._writer.end)
        self._writer.close()

    def _land(self, future: asyncio.Future[int], entry: Entry, end: int) -> None:
        self._tail = entry.position
        self._segments[-1].length = end
        if not future.done():
            future.set_result(entry.position)
        for follower in self._followers:
            follower.offer(entry)

    def _fail(self, future: asyncio.Future[int], failure: AppendFailed) -> None:
        if not future.done():
            future.set_exception(failure)
