"""The disk as the file log sees it. All file access goes through it, so that tests can simulate power loss.

A failure is an OSError. Nothing is durable until `sync` (contents) or `sync_directory` (names) returns.
"""

import os
from contextlib import suppress
from typing import Protocol


class Disk(Protocol):
    """Files by descriptor, folders by path."""

    def create(self, path: str) -> int:
        """Open a new file; FileExistsError if the name is taken."""
        ...

    def open(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        ...

    def close(self, file: int) -> None:
        """Close an open file."""
        ...

    def write(self, file: int, data: bytes, offset: int) -> None:
        """Write all of the data at a byte offset."""
        ...

    def read(self, file: int, length: int, offset: int) -> bytes:
        """Read from a byte offset; the result is shorter than asked only at the end of the file."""
        ...

    def sync(self, file: int) -> None:
        """Make the contents of a file durable."""
        ...

    def truncate(self, file: int, size: int) -> None:
        """Truncate or extend a file to a size."""
        ...

    def preallocate(self, file: int, size: int) -> None:
        """Reserve space up to a size; the new bytes read as zero."""
        ...

    def size(self, file: int) -> int:
        """The size of an open file."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names in a folder, in no particular order."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing the target if it exists."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make the names in a folder durable."""
        ...

    def make_directory(self, directory: str) -> None:
        """Make a folder and its missing parents, and make each durable in its parent."""
        ...


class RealDisk:
    """The disk of this machine."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, file: int) -> None:
        os.close(file)

    def write(self, file: int, data: bytes, offset: int) -> None:
        written = os.pwrite(file, data, offset)
        while written < len(data):
            written += os.pwrite(file, memoryview(data)[written:], offset + written)

    def read(self, file: int, length: int, offset: int) -> bytes:
        data = os.pread(file, length, offset)
        while len(data) < length and (more := os.pread(file, length - len(data), offset + len(data))):
            data += more
        return data

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def preallocate(self, file: int, size: int) -> None:
        os.posix_fallocate(file, 0, size)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def list(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def sync_directory(self, directory: str) -> None:
        file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def make_directory(self, directory: str) -> None:
        parent = os.path.dirname(os.path.abspath(directory))
        if os.path.isdir(directory):
            # The process that made it may have died before syncing. A parent we may not read is not ours.
            with suppress(PermissionError):
                self.sync_directory(parent)
            return
        if not os.path.isdir(parent):
            self.make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(directory)
        self.sync_directory(parent)


REAL_DISK = RealDisk()
