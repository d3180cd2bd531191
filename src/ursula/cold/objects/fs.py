"""A store of local files: an object is a file that gets its name once all of it is on the disk.

A file is written in `tmp`, synced, then renamed (or linked if it must not replace another), and every folder
on its path is synced, even if it existed: the process that made it may not have synced it yet. After a
removal the folder is synced too, so that the object does not come back.
"""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .fsync import sync_folder
from .store import (
    UNFINISHED,
    ObjectDamaged,
    ObjectInfo,
    ObjectMissing,
    StoreFailed,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
)
from .ulid import new_ulid

T = TypeVar("T")

_THREADS = 8
_HINTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exhausted",
    errno.EROFS: "the disk is mounted read-only",
    errno.EACCES: "check who owns the folder and its permissions",
    errno.EPERM: "check who owns the folder, its permissions, and that its file system has hard links",
    errno.EIO: "check the disk",
}


class FsStore:
    """The objects below a folder, which is created with the first object."""

    def __init__(self, root: Path, owner: str = "") -> None:
        """If several processes share the folder, each is an `owner` with unfinished files of its own."""
        self._root = Path(os.path.abspath(root))
        self._all_unfinished = self._root / UNFINISHED
        self._unfinished = self._all_unfinished / owner
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")

    @property
    def root(self) -> str:
        """The folder."""
        return str(self._root)

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store an object, or replace it."""
        await self._do(self._put, check_key(key), data)

    async def create(self, key: str, data: bytes) -> bool:
        """Store an object unless it already exists."""
        return await self._do(self._create, check_key(key), data)

    async def put_file(self, key: str, path: Path) -> None:
        """Turn a local file into an object, by renaming it if both are on the same disk."""
        await self._do(self._put_file, check_key(key), path)

    async def get(self, key: str) -> bytes:
        """All of an object."""
        return await self._find(key, Path.read_bytes)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from start up to end."""
        return await self._do(self._get_range, key, start, end)

    def local_range(self) -> Callable[[str, int, int], bytes]:
        """`get_range` for callers in threads."""
        return self._get_range

    async def get_file(self, key: str, path: Path) -> None:
        """Copy an object to a local file."""
        await self._find(key, lambda source: _copy(source, path))

    async def size(self, key: str) -> int:
        """How many bytes an object has."""
        return await self._find(key, _size)

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects below a prefix, sorted by key."""
        folder = self._root / check_prefix(prefix)
        return await self._do(lambda: sorted(self._below(str(folder), prefix)))

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, and folders that become empty."""
        await self._do(self._delete, [check_key(key) for key in keys])

    def local_path(self, key: str) -> Path:
        """The file of an object."""
        return self._root / check_key(key)

    @property
    def unfinished(self) -> Path:
        """The folder for files that are not objects yet."""
        return self._unfinished

    async def forget_unfinished(self, older_than: float | None = None) -> None:
        """Remove the unfinished files that this owner left, or older ones of all owners."""
        if older_than is None:
            await self._do(self._forget_unfinished, self._unfinished, time.time())
        else:
            await self._do(self._forget_unfinished, self._all_unfinished, time.time() - older_than)

    async def close(self) -> None:
        """Wait until the operations in progress have ended."""
        await asyncio.to_thread(self._threads.shutdown)

    # --- In threads ----------------------------------------------------------------------------------------

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        """Run some work in a thread; an OSError becomes a failure of the store."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except OSError as error:
            raise self._unavailable(error) from error

    async def _find(self, key: str, read: Callable[[Path], T]) -> T:
        """Read an object in a thread."""
        return await self._do(self._look_up, key, read)

    def _look_up(self, key: str, read: Callable[[Path], T]) -> T:
        path = self.local_path(key)
        try:
            return read(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            if not path.is_file():
                raise ObjectMissing(key) from error
            raise

    def _get_range(self, key: str, start: int, end: int) -> bytes:
        length = check_range(start, end)

        def read(path: Path) -> bytes:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(file, length, start)
            finally:
                os.close(file)

        try:
            data = self._look_up(key, read)
        except OSError as error:
            raise self._unavailable(error) from error
        if len(data) != length:
            raise ObjectDamaged(key, f"it ends before byte {end}")
        return data

    def _unavailable(self, error: OSError) -> StoreFailed:
        why = error.strerror or str(error)
        hint = _HINTS.get(error.errno or 0)
        return StoreUnavailable(f"the store {self._root}: {why}" + (f"; {hint}" if hint else ""))

    def _put(self, key: str, data: bytes | memoryview) -> None:
        written = self._write(data)
        self._name(written, key, os.rename)

    def _create(self, key: str, data: bytes) -> bool:
        if self.local_path(key).exists():
            self._sync_names(key)  # another process may have made it just now
            return False
        written = self._write(data)
        try:
            self._name(written, key, os.link)
        except FileExistsError:
            if not self.local_path(key).exists():
                raise  # a folder on the path is a file
            self._sync_names(key)
            return False
        finally:
            written.unlink(missing_ok=True)
        return True

    def _put_file(self, key: str, source: Path) -> None:
        self._make_root()
        _sync_file(source)
        try:
            self._name(source, key, os.rename)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy = self._unfinished / new_ulid()
            _copy(source, copy)
            _sync_file(copy)
            self._name(copy, key, os.rename)
            source.unlink()

    def _write(self, data: bytes | memoryview) -> Path:
        """Write the bytes to a temporary file and sync it."""
        self._make_root()
        path = self._unfinished / new_ulid()
        try:
            with path.open("xb", buffering=0) as file:
                view = memoryview(data).cast("B")
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path

    def _make_root(self) -> None:
        """Create the root and any missing parents, and make their names durable."""
        missing = [folder for folder in (self._root, *self._root.parents) if not folder.exists()]
        self._unfinished.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)

    def _name(self, written: Path, key: str, give: Callable[[Path, Path], None]) -> None:
        path = self.local_path(key)
        try:
            while not _given(written, path, give):
                pass
        except OSError:
            if written.parent == self._unfinished:
                written.unlink(missing_ok=True)
            raise
        self._sync_names(key)

    def _sync_names(self, key: str) -> None:
        """Make every name on the path of an object durable, up to that of the root."""
        for folder in self.local_path(key).parents[: key.count("/") + 2]:
            sync_folder(folder)

    def _below(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir():
                if prefix or entry.name != UNFINISHED:
                    yield from self._below(entry.path, f"{prefix}{entry.name}/")
                continue
            with suppress(FileNotFoundError):  # it has been removed in the meantime
                status = entry.stat()
                yield ObjectInfo(prefix + entry.name, status.st_size, status.st_mtime)

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self.local_path(key)
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                path.unlink()
            with suppress(OSError):  # a folder is not empty, or has already been removed
                for folder in path.parents[: key.count("/")]:
                    folder.rmdir()
        self._sync_removals({self.local_path(key).parent for key in keys})

    def _sync_removals(self, folders: set[Path]) -> None:
        """Make removals durable: the caller may go on to remove the objects that these named."""
        while folders:
            folder = folders.pop()
            try:
                sync_folder(folder)
            except (FileNotFoundError, NotADirectoryError):
                if folder != self._root:
                    folders.add(folder.parent)

    def _forget_unfinished(self, folder: Path, before: float) -> None:
        for path in folder.rglob("*"):
            with suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime <= before:
                    path.unlink()


def _given(written: Path, path: Path, give: Callable[[Path, Path], None]) -> bool:
    """Name a file; False if its folder vanished with the last object in it: the caller must try again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # it was there, and was removed before it was found to be a folder
        if path.parent.is_file():
            raise
        return False
    except FileNotFoundError:  # a folder above it was removed
        return False
    try:
        give(written, path)
    except FileNotFoundError:  # the folder was removed; it may exist again by now
        if not written.exists():
            raise
        return False
    return True


def _size(path: Path) -> int:
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return path.stat().st_size


def _copy(source: Path, target: Path) -> None:
    """Copy a file; if that fails, no partial copy is left behind."""
    with source.open("rb") as whole:
        try:
            with target.open("wb") as copy:
                shutil.copyfileobj(whole, copy, 1 << 20)
        except OSError:
            target.unlink(missing_ok=True)
            raise


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
