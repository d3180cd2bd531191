"""Blobs: application snapshots and large bodies, each an object that is written once and never changed.

What arrives is written beside its place first: an object has its name when it is whole. Whether it counts is
decided by the log, which names it.
"""

import asyncio
import hashlib
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..crc import crc32
from .cache import Cache
from .objects import keys
from .objects.checksum import digest_of
from .objects.keys import blob_key
from .objects.store import ObjectDamaged, ObjectMissing, Store
from .objects.temp_files import Unfinished, as_store_failure
from .objects.ulid import new_ulid
from .state.manifest import not_what_it_was

COPIES_BYTES_MAX = 1 << 30
"""So many bytes of blobs that are elsewhere are kept here as files."""

WRITE_BYTES = 1024 * 1024
"""So much of small pieces is gathered before it goes to a file."""

BLOCK_BYTES = 256 * 1024
"""A large body has a checksum for each so many bytes, so that a part of it can be checked without the rest.
The log has these checksums, so this never changes."""


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
        return keys.new_blob(bucket, incarnation)

    def create(self) -> "BlobWriter":
        """Begin a blob that has no name yet. Blocking."""
        with as_store_failure():
            return BlobWriter(self._unfinished.new_path("blob"))

    async def keep(self, writer: "BlobWriter", key: str) -> None:
        """Make what was written durable under this name; nothing is left of it if that fails."""
        try:
            await self._store.put_file(blob_key(key), writer.path)
        finally:
            await asyncio.to_thread(writer.discard)  # it is elsewhere now, or not wanted
        await self._check_place(key)

    async def put(self, key: str, pieces: Sequence[bytes]) -> tuple[int, ...]:
        """Store these bytes in a row under this name; returns the checksums of their blocks."""
        checksums = BlockChecksums()
        if len(pieces) == 1:
            await asyncio.to_thread(checksums.add, pieces[0])
            await self._store.put(blob_key(key), pieces[0])
            await self._check_place(key)
        else:
            await self.keep(await asyncio.to_thread(self._write, pieces, checksums), key)
        return checksums.finish()

    async def size(self, key: str) -> int:
        """How many bytes a blob has."""
        return await self._store.size(blob_key(key))

    async def file(self, key: str) -> "BlobFile":
        """A blob as a local file, which stays for as long as someone has this."""
        path = self._store.local_path(blob_key(key))
        if path is not None:
            return BlobFile(path, await self.size(key))

        async def load() -> tuple[BlobFile, int]:
            copy = await self._copy(key)
            return copy, copy.size

        return await self._copies.get(key, load)

    async def check(self, key: str, blob: "BlobFile", digest: str) -> None:
        """ObjectDamaged if the bytes of a blob are not those that had this digest.

        All of it is read, each time: what was right before may have been damaged since.
        """
        try:
            is_right = await asyncio.to_thread(blob.digest) == digest
        except FileNotFoundError:
            raise ObjectMissing(blob_key(key)) from None
        except OSError as error:
            raise ObjectDamaged(blob_key(key), f"it cannot be read: {error.strerror}") from None
        if not is_right:
            raise self._other_digest(key, blob.size)

    async def read(self, key: str, digest: str) -> bytes:
        """All of a blob; ObjectDamaged if its bytes are not those that had this digest."""
        if self._store.local_path(blob_key(key)) is not None:
            data = await self._store.get(blob_key(key))
        else:
            copy = await self.file(key)
            data = await asyncio.to_thread(copy.path.read_bytes)
        if await asyncio.to_thread(digest_of, data) != digest:
            raise self._other_digest(key, len(data))
        return data

    def _other_digest(self, key: str, size: int) -> ObjectDamaged:
        self._copies.forget(key)  # perhaps only the copy is damaged
        return ObjectDamaged(
            blob_key(key), f"its {size} bytes have another digest than those that were stored"
        )

    async def remove(self, key: str) -> None:
        """Forget a blob."""
        await self._store.delete([blob_key(key)])

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
        await self._store.get_file(blob_key(key), path)
        return BlobFile(path, path.stat().st_size, is_copy=True)

    def _write(self, pieces: Sequence[bytes], checksums: "BlockChecksums") -> "BlobWriter":
        writer = self.create()
        try:
            for data in _gathered(pieces):
                checksums.add(data)
                writer.write(data)
        except BaseException:
            writer.discard()
            raise
        return writer


def _gathered(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """Small pieces joined to larger ones."""
    some: list[bytes] = []
    size = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            yield b"".join(some)
            some, size = [], 0
    yield b"".join(some)


class BlockChecksums:
    """The CRC-32 of each block of some bytes, which come bit by bit. Blocking: for threads."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._current = 0
        self._room = BLOCK_BYTES

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        view = memoryview(data)
        while view:
            some = view[: self._room]
            self._current = crc32(some, self._current)
            self._room -= len(some)
            view = view[len(some) :]
            if not self._room:
                self._end_block()

    def finish(self) -> tuple[int, ...]:
        """One for each block, when all bytes have come; the last block may be shorter."""
        if self._room < BLOCK_BYTES:
            self._end_block()
        return tuple(self._done)

    def _end_block(self) -> None:
        self._done.append(self._current)
        self._current, self._room = 0, BLOCK_BYTES


class BlobFile:
    """A file with the bytes of a blob; if it is a copy, it goes when nobody has this any more."""

    def __init__(self, path: Path, size: int, is_copy: bool = False) -> None:
        self.path = path
        self.size = size
        if is_copy:
            weakref.finalize(self, path.unlink, missing_ok=True)

    def digest(self) -> str:
        """What tells its bytes from all others. Blocking: for a thread."""
        with self.path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


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
        with as_store_failure():
            while view:
                view = view[self._file.write(view) :]

    def discard(self) -> None:
        """End writing, and leave nothing behind under this name."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def made_at(key: str) -> int:
    """When a blob got its name, in microseconds since 1970."""
    return keys.made_at(key) or 0
