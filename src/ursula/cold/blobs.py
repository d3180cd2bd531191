"""Blobs: application snapshots as files, each written once and never changed.

A blob is written beside its place, synced, renamed and its folders synced: what has a name is whole.
Whether it counts is decided by the log, which names it. Blocking: for threads.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from .ulid import is_ulid, new_ulid

_NAME_CHARACTERS_MAX = 200
_FOLDERS = 5
"""From the folder of a blob to the one that the cold folder lies in: each has a name that must be synced."""


class Blobs:
    """The blobs below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root / "blobs"
        self._unfinished = root / "tmp"

    def new_key(self, bucket: str, incarnation: str) -> str:
        """A name that no other blob has."""
        name = quote(bucket, safe="") if bucket != "." else "%2E"
        if len(name) > _NAME_CHARACTERS_MAX:  # no file system takes it; the incarnation tells them apart
            name = name[:_NAME_CHARACTERS_MAX].rpartition("%")[0]
        return f"{name}/{incarnation}/{new_ulid()}"

    def create(self) -> "BlobWriter":
        """Begin a blob that has no name yet."""
        self._unfinished.mkdir(parents=True, exist_ok=True)
        return BlobWriter(self._unfinished / new_ulid())

    def keep(self, writer: "BlobWriter", key: str) -> None:
        """Make what was written durable under this name."""
        path = self.path(key)
        writer.sync()
        while True:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.rename(writer.path, path)
                break
            except FileNotFoundError:
                if not writer.path.exists():
                    raise
                # A folder was removed just now, with the last blob in it.
        # A folder that was there already may have been made by someone who has not synced it, or was killed.
        for folder in path.parents[:_FOLDERS]:
            sync_folder(folder)

    def path(self, key: str) -> Path:
        """The file of a blob."""
        return self._root / key

    def remove(self, key: str) -> None:
        """Forget a blob, and the folders that hold nothing else."""
        path = self.path(key)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or gone already
            path.parent.rmdir()
            path.parent.parent.rmdir()

    def keys(self) -> Iterator[str]:
        """All blobs that are there; what has another kind of name is someone else's."""
        for path in self._root.glob("*/*/*"):
            if is_ulid(path.name):
                yield path.relative_to(self._root).as_posix()

    def forget_unfinished(self) -> None:
        """Remove what a killed process left half-written."""
        for path in self._unfinished.glob("*"):
            path.unlink(missing_ok=True)


class BlobWriter:
    """A blob that is being written; it gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._file = path.open("xb", buffering=0)

    @property
    def digest(self) -> str:
        """What tells its bytes from all others."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._hash.update(data)
        self.size += len(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def sync(self) -> None:
        """Have everything on the disk, and end writing."""
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
