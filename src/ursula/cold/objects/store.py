"""The interface of a store: objects by key, and the three ways in which it can fail.

An object is written once and never changed, except for live lists, which are replaced as a whole. Keys are
relative paths (see keys.py).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

UNFINISHED = "tmp"
"""The folder of unfinished files; no object may be in it."""

PART_BYTES = 8 << 20
"""Remote objects are sent in parts of this size; fetching the same parts is cheapest."""


class ObjectInfo(NamedTuple):
    """An object in a listing; `modified_at` is in seconds since 1970."""

    key: str
    size: int
    modified_at: float


class Store(Protocol):
    """Objects below a root. An object is durable once the call that stores it returns."""

    @property
    def root(self) -> str:
        """Its address as an operator writes it: an absolute path, or s3://bucket/prefix."""

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store or replace an object; no reader sees a mixture of old and new."""

    async def create(self, key: str, data: bytes) -> bool:
        """Store an object unless it exists; return False if it did, no matter who made it."""

    async def put_file(self, key: str, path: Path) -> None:
        """Turn a local file into an object; the file is gone afterwards."""

    async def get(self, key: str) -> bytes:
        """All of an object."""

    async def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """The bytes from start up to end; ObjectDamaged if the object is shorter."""

    async def get_file(self, key: str, path: Path) -> None:
        """Copy an object to a local file, in parts; a partial file is removed."""

    async def size(self, key: str) -> int:
        """How many bytes an object has."""

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects below a prefix, which ends with a slash or is empty, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; a missing one is not an error."""

    def local_range(self) -> Callable[[str, int, int], bytes] | None:
        """`get_range` for callers in threads, if the store is on this machine."""

    def local_path(self, key: str) -> Path | None:
        """The file of an object, if the store is on this machine."""

    @property
    def unfinished(self) -> Path | None:
        """The folder for files that are not objects yet, if the store is on this machine."""

    async def forget_unfinished(self, older_than: float | None = None) -> None:
        """Remove the unfinished files that an earlier process of this node left.

        With an age in seconds: those of all nodes that are older than this.
        """

    async def close(self) -> None:
        """Release threads and connections."""


class StoreFailed(Exception):
    """An operation of the store failed."""


class ObjectMissing(StoreFailed):
    """There is no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the object {key} is missing")
        self.key = key


class ObjectDamaged(StoreFailed):
    """The object exists, but its bytes are not those that were written."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"the object {key} is damaged: {problem}")
        self.key = key
        self.problem = problem


class StoreUnavailable(StoreFailed):
    """The store cannot be reached or rejects the request; the message says what to check."""


def not_what_it_was(store: Store, missing: str) -> StoreUnavailable:
    """The failure of a store without an object that it must have."""
    return StoreUnavailable(
        f"the store {store.root} has no {missing}, which it had before: is its disk mounted?"
    )


def check_key(key: str) -> str:
    """The key; ValueError if it leads out of the root or into the folder of unfinished files."""
    parts = key.split("/")
    if "\0" in key or not {"", ".", ".."}.isdisjoint(parts) or parts[0] == UNFINISHED:
        raise ValueError(f"{key!r} is not the key of an object")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix; ValueError if it is neither empty nor the name of a folder with a slash."""
    if prefix:
        if not prefix.endswith("/"):
            raise ValueError(f"the prefix {prefix!r} does not end with a slash")
        check_key(prefix[:-1])
    return prefix


def check_range(start: int, end: int) -> int:
    """The length of a range of bytes; ValueError if it is not one."""
    if not 0 <= start <= end:
        raise ValueError(f"{start} to {end} is not a range of bytes")
    return end - start
