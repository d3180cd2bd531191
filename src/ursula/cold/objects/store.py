"""The store as everyone else sees it: objects by name, and the three ways in which it can fail.

An object is written once and never changed, but for the live lists, which are replaced whole. Keys are
relative paths; what may not be part of a name is percent-encoded by whoever makes the key.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

UNFINISHED = "tmp"
"""The folder of what is being written; no object may lie there."""

PART_BYTES = 8 << 20
"""Objects that are far away are sent in parts of so many bytes, and best fetched from border to border."""


class ObjectInfo(NamedTuple):
    """An object that is there; `modified_at` is in seconds since 1970."""

    key: str
    size: int
    modified_at: float


class Store(Protocol):
    """Objects below a root; what was put is durable when the call returns."""

    @property
    def root(self) -> str:
        """Where it is, as an operator writes it: an absolute folder, or s3://bucket/prefix."""

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store an object; one that is there is replaced, and no reader sees a mixture."""

    async def create(self, key: str, data: bytes) -> bool:
        """Store an object unless it is there already: then False, whoever made it."""

    async def put_file(self, key: str, path: Path) -> None:
        """Make an object of a local file, which is gone afterwards."""

    async def get(self, key: str) -> bytes:
        """All of an object."""

    async def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """The bytes from start up to end; an object that has fewer is damaged."""

    async def get_file(self, key: str, path: Path) -> None:
        """Copy an object to a local file, a bit at a time; the file is there only if it is whole."""

    async def size(self, key: str) -> int:
        """How many bytes an object has."""

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects below a prefix, which ends with a slash or is empty, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error."""

    def local_range(self) -> Callable[[str, int, int], bytes] | None:
        """`get_range` for those who are in a thread already, where the store is on this machine."""

    def local_path(self, key: str) -> Path | None:
        """The file that the object is, where the store is on this machine."""

    async def forget_unfinished(self, older_than: float = 0.0) -> None:
        """Remove what killed processes left half-written at least so many seconds ago."""

    async def close(self) -> None:
        """Give back threads and connections."""


class StoreFailed(Exception):
    """The store did not do what it was asked to."""


class ObjectMissing(StoreFailed):
    """There is no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the object {key} is missing")
        self.key = key


class ObjectDamaged(StoreFailed):
    """The object is there, but it is not what was written."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"the object {key} is damaged: {problem}")
        self.key = key
        self.problem = problem


class StoreUnavailable(StoreFailed):
    """The store cannot be reached or refuses us; the text says what to check."""


def check_key(key: str) -> str:
    """The key, unless it could lead out of the root or into what is unfinished."""
    parts = key.split("/")
    if "\0" in key or not {"", ".", ".."}.isdisjoint(parts) or parts[0] == UNFINISHED:
        raise ValueError(f"{key!r} is no key of an object")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix, if it is empty or names a folder."""
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"the prefix {prefix!r} does not end with a slash")
        check_key(prefix[:-1])
    return prefix


def check_range(start: int, end: int) -> int:
    """How many bytes lie between the two."""
    if not 0 <= start <= end:
        raise ValueError(f"{start} to {end} is no range of bytes")
    return end - start
