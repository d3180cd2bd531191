"""Blobs: application snapshots and large bodies, each an object that is written once and never changed.

What arrives is written beside its place first: an object has its name when it is whole. Whether it counts is
decided by the log, which names it.
"""

import asyncio
import hashlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from .cache import Cache
from .manifest import not_what_it_was
from .store import Store
from .ulid import milliseconds_of, new_ulid
from .unfinished import Unfinished, no_room

COPIES_BYTES_MAX = 1 << 30
"""So many bytes of blobs that are elsewhere are kept here as files."""

WRITE_BYTES = 1024 * 1024
"""So much of small pieces is gathered before it goes to a file."""

_NAME_CHARACTERS_MAX = 200


class Blobs:
    """The blobs of a store; `scratch` is for what is on its way to or from one that is elsewhere.

    `beside` names an object without which the store is not the one it was: nothing is stored then.
    """

    def __init__(
        self,
        store: Store,
        scratch: Path,
        copies_bytes_max: int = COPIES_BYTES_MAX,
        beside: str | None = None,
    ) -> None:
        self._store = store
        self._scratch = scratch
        self._beside = beside
        self._unfinished = Unfinished(store, scratch)
        self._copies = Cache(copies_bytes_max)

    def new_key(self, bucket: str, incarnation: str) -> str:
        """A name that no other blob has."""
        name = quote(bucket, safe="") if bucket != "." else "%2E"
        if len(name) > _NAME_CHARACTERS_MAX:  # no file system takes it; the incarnation tells them apart
            name = name[:_NAME_CHARACTERS_MAX].rpartition("%")[0]
        return f"{name}/{incarnation}/{new_ulid()}"

    def create(self) -> "BlobWriter":
        """Begin a blob that has no name yet. Blocking."""
        with no_room():
            return BlobWriter(self._unfinished.new_path("blob"))

    async def keep(self, writer: "BlobWriter", key: str) -> None:
        """Make what was written durable under this name; nothing is left of it if that fails."""
        try:
            await self._store.put_file(_object(key), writer.path)
        finally:
            await asyncio.to_thread(writer.discard)  # it is elsewhere now, or not wanted
        await self._check_place(key)

    async def put(self, key: str, pieces: Sequence[bytes]) -> None:
        """Store these bytes in a row under this name."""
        if len(pieces) == 1:
            await self._store.put(_object(key), pieces[0])
            await self._check_place(key)
        else:
            await self.keep(await asyncio.to_thread(self._write, pieces), key)

    async def size(self, key: str) -> int:
        """How many bytes a blob has."""
        return await self._store.size(_object(key))

    async def file(self, key: str) -> "BlobFile":
        """A blob as a local file, which stays for as long as someone has this."""
        path = self._store.local_path(_object(key))
        if path is not None:
            return BlobFile(path, await self.size(key))

        async def load() -> tuple[BlobFile, int]:
            copy = await self._copy(key)
            return copy, copy.size

        return await self._copies.get(key, load)

    async def read(self, key: str) -> bytes:
        """All of a blob."""
        if self._store.local_path(_object(key)) is not None:
            return await self._store.get(_object(key))
        copy = await self.file(key)
        return await asyncio.to_thread(copy.path.read_bytes)

    async def remove(self, key: str) -> None:
        """Forget a blob."""
        await self._store.delete([_object(key)])

    async def close(self) -> None:
        """Forget the copies."""
        await self._copies.close()

    async def _check_place(self, key: str) -> None:
        """Take back what went into an empty folder, where the disk of a local store is no longer mounted."""
        if self._beside is None:
            return
        path = self._store.local_path(self._beside)
        if path is not None and not await asyncio.to_thread(path.exists):
            await self.remove(key)
            raise not_what_it_was(self._store, self._beside)

    async def _copy(self, key: str) -> "BlobFile":
        path = self._scratch / f"blob-{new_ulid()}"
        await self._store.get_file(_object(key), path)
        return BlobFile(path, path.stat().st_size, is_copy=True)

    def _write(self, pieces: Sequence[bytes]) -> "BlobWriter":
        writer = self.create()
        try:
            gathered: list[bytes] = []
            size = 0
            for piece in pieces:
                gathered.append(piece)
                size += len(piece)
                if size >= WRITE_BYTES:
                    writer.write(b"".join(gathered))
                    gathered, size = [], 0
            writer.write(b"".join(gathered))
        except BaseException:
            writer.discard()
            raise
        return writer


class BlobFile:
    """A file with the bytes of a blob; if it is a copy, it goes when nobody has this any more."""

    def __init__(self, path: Path, size: int, is_copy: bool = False) -> None:
        self.path = path
        self.size = size
        self.is_copy = is_copy
        if is_copy:
            weakref.finalize(self, path.unlink, missing_ok=True)


class BlobWriter:
    """A blob that is being written; it gets its name when it is whole. Blocking: for threads."""

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
        with no_room():
            while view:
                view = view[self._file.write(view) :]

    def discard(self) -> None:
        """End writing, and leave nothing behind under this name."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def made_at(key: str) -> int:
    """When a blob got its name, in microseconds since 1970."""
    return milliseconds_of(key.rpartition("/")[2]) * 1000


def _object(key: str) -> str:
    return f"blobs/{key}"
