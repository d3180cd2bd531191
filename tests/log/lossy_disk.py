"""A disk in memory that keeps what is durable apart from what is only in the cache, and can lose power.

A failed sync behaves like the worst of real kernels: some pages arrive, and none is ever written again.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import RLock

PAGE_BYTES = 64


class PowerLoss(Exception):
    """The machine is off: every call to the disk fails until `crash`."""


class Inode:
    """One file: its cached contents, its durable contents, and the pages in which they may differ."""

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def resize(self, size: int) -> None:
        self.touch(min(size, len(self.cached)), max(size, len(self.cached)))
        del self.cached[size:]
        self.cached.extend(bytes(size - len(self.cached)))

    def keep(self, pages: set[int], size: int) -> None:
        """Make some pages and a size durable."""
        for page in pages:
            start, end = page * PAGE_BYTES, (page + 1) * PAGE_BYTES
            if len(self.durable) < end:
                self.durable.extend(bytes(end - len(self.durable)))
            self.durable[start:end] = bytes(self.cached[start:end]).ljust(PAGE_BYTES, b"\0")
        del self.durable[size:]
        self.durable.extend(bytes(size - len(self.durable)))

    def forget(self) -> None:
        self.cached = bytearray(self.durable)
        self.dirty.clear()


class LossyDisk:
    """Implements Disk. `calls` counts every call that changes something or makes it durable."""

    def __init__(self, seed: int = 0, budget_bytes: int | None = None) -> None:
        self.random = Random(seed)
        self.budget_bytes = budget_bytes
        self.calls = 0
        self.power_fails_after: int | None = None
        self.history: list[tuple[str, str]] = []
        self._faults: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self._cached_names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._open: dict[int, tuple[str, Inode]] = {}
        self._next_file = 1000
        self._lock = RLock()

    # For tests.

    def fail(self, operation: str, code: int, *, after: int = 0, times: int = 1) -> None:
        """Fail the next calls of an operation, after some that still work."""
        begin = self._counts[operation] + after + 1
        for number in range(begin, begin + times):
            self._faults[operation, number] = code

    def crash(self, random: Random | None = None) -> None:
        """Lose everything that is not durable, or with a random keep any part of it."""
        if random is not None:
            self._keep_some(random)
        self._cached_names = dict(self._durable_names)
        for inode in self._durable_names.values():
            inode.forget()
        self._open.clear()
        self._faults.clear()
        self.power_fails_after = None

    def contents(self, path: str) -> bytes:
        """What a reader of the file sees now."""
        return bytes(self._cached_names[path].cached)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the contents of a file, durably."""
        inode = Inode()
        inode.cached[:] = inode.durable[:] = data
        self._cached_names[path] = self._durable_names[path] = inode

    def remove(self, path: str) -> None:
        """Remove a file, durably."""
        del self._cached_names[path], self._durable_names[path]

    def paths(self) -> list[str]:
        """All files, sorted."""
        return sorted(self._cached_names)

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._open)

    def used_bytes(self) -> int:
        """How much of the budget the files use."""
        return sum(len(inode.cached) for inode in self._cached_names.values())

    # The interface of a disk.

    def create(self, path: str) -> int:
        with self._call("create", path):
            if path in self._cached_names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._cached_names[path] = Inode()
            return self._handle(path)

    def open(self, path: str) -> int:
        with self._lock:
            self._need_power()
            if path not in self._cached_names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return self._handle(path)

    def close(self, file: int) -> None:
        with self._lock:
            self._open.pop(file, None)

    def write(self, file: int, data: bytes, offset: int) -> None:
        path, inode = self._open[file]
        with self._call("write", path):
            room = self._room()
            allowed = len(data) if room is None else min(len(data), room + len(inode.cached) - offset)
            if allowed > 0:
                if len(inode.cached) < offset + allowed:
                    inode.resize(offset + allowed)
                inode.cached[offset : offset + allowed] = data[:allowed]
                inode.touch(offset, offset + allowed)
            if allowed < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, file: int, length: int, offset: int) -> bytes:
        with self._lock:
            self._need_power()
            return bytes(self._open[file][1].cached[offset : offset + length])

    def sync(self, file: int) -> None:
        path, inode = self._open[file]
        try:
            with self._call("sync", path):
                inode.keep(inode.dirty, len(inode.cached))
                inode.dirty.clear()
        except OSError:
            arrived = {page for page in inode.dirty if self.random.random() < 0.5}
            size = len(inode.cached) if self.random.random() < 0.5 else len(inode.durable)
            inode.keep(arrived, max(size, len(inode.durable)))
            inode.dirty.clear()
            raise

    def truncate(self, file: int, size: int) -> None:
        path, inode = self._open[file]
        with self._call("truncate", path):
            inode.resize(size)

    def preallocate(self, file: int, size: int) -> None:
        path, inode = self._open[file]
        with self._call("preallocate", path):
            room = self._room()
            if room is not None and size - len(inode.cached) > room:
                inode.resize(len(inode.cached) + room)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            inode.resize(max(size, len(inode.cached)))

    def size(self, file: int) -> int:
        with self._lock:
            self._need_power()
            return len(self._open[file][1].cached)

    def list(self, directory: str) -> list[str]:
        with self._lock:
            self._need_power()
            return [os.path.basename(path) for path in self._cached_names if _is_in(path, directory)]

    def unlink(self, path: str) -> None:
        with self._lock:
            if path not in self._cached_names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            with self._call("unlink", path):
                del self._cached_names[path]

    def rename(self, old: str, new: str) -> None:
        with self._call("rename", old):
            moved = self._cached_names[new] = self._cached_names.pop(old)
            self._open = {f: (new if i is moved else path, i) for f, (path, i) in self._open.items()}

    def sync_directory(self, directory: str) -> None:
        with self._call("sync_directory", directory):
            outside = {path: i for path, i in self._durable_names.items() if not _is_in(path, directory)}
            inside = {path: i for path, i in self._cached_names.items() if _is_in(path, directory)}
            self._durable_names = outside | inside

    def make_directory(self, directory: str) -> None:
        with self._lock:
            self._need_power()

    # How it keeps track.

    def _handle(self, path: str) -> int:
        self._next_file += 1
        self._open[self._next_file] = (path, self._cached_names[path])
        return self._next_file

    def _room(self) -> int | None:
        return None if self.budget_bytes is None else max(0, self.budget_bytes - self.used_bytes())

    def _need_power(self) -> None:
        if self.power_fails_after is not None and self.calls >= self.power_fails_after:
            raise PowerLoss

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[None]:
        """One call: it may fail, and the power may fail just after it."""
        with self._lock:
            self._need_power()
            self.calls += 1
            self._counts[operation] += 1
            self.history.append((operation, os.path.basename(path)))
            if code := self._faults.get((operation, self._counts[operation])):
                raise OSError(code, os.strerror(code))
            if operation == "create" and self._room() == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            loses_sync = operation.startswith("sync") and self.calls == self.power_fails_after
            if loses_sync and self.random.random() < 0.5:
                raise PowerLoss
            yield
            self._need_power()

    def _keep_some(self, random: Random) -> None:
        for path in sorted({*self._cached_names, *self._durable_names}):
            before, now = self._durable_names.get(path), self._cached_names.get(path)
            if before is now or random.random() < 0.5:
                continue
            if now is None:
                del self._durable_names[path]
            else:
                self._durable_names[path] = now
        for inode in self._durable_names.values():
            kept = {page for page in inode.dirty if random.random() < 0.5}
            size = random.choice((len(inode.cached), len(inode.durable)))
            inode.keep(kept, size)


def _is_in(path: str, directory: str) -> bool:
    return os.path.dirname(path) == directory
