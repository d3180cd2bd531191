"""Blobs: application snapshots and large bodies, each an object that is written once and never changed.

A blob is first written to a temporary file, and gets its key when it is complete. It is part of the data only
once a command in the log names it.

The bytes of a snapshot are exactly those that the application sent; the command has their digest. The bytes
of a large body are its messages, one after the other; the command has the size of each, and a checksum of
each block of `BLOCK_BYTES`.
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
from .objects.store import ObjectDamaged, ObjectMissing, Store, not_what_it_was
from .objects.temp_files import Unfinished, as_store_failure
from .objects.ulid import new_ulid

COPIES_BYTES_MAX = 1 << 30
"""How many bytes of remote blobs are cached as local files."""

WRITE_BYTES = 1024 * 1024
"""How many bytes of small pieces are collected before they are written to a file."""

BLOCK_BYTES = 256 * 1024
"""A large body has a checksum for each block of this size, so that a slice can be verified without the rest.
The log has these checksums, so this never changes."""


class Blobs:
    """The blobs of a store; `scratch` is a folder for uploads to a remote store and for copies from it.

    `beside` is the key of an object that the store must have. If it is missing, the disk of the store is not
    mounted, and nothing is stored.
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
        """A new name for a blob of a stream."""
        return keys.new_blob(bucket, incarnation)

    def create(self) -> "BlobWriter":
        """Begin a blob; `keep` names it. Blocking."""
        with as_store_failure():
            return BlobWriter(self._unfinished.new_path("blob"))

    async def keep(self, writer: "BlobWriter", key: str) -> None:
        """Store the blob that was written under this name. If that fails, nothing is left behind."""
        try:
            await self._store.put_file(blob_key(key), writer.path)
        finally:
            await asyncio.to_thread(writer.discard)  # it is in the store now, or no longer wanted
        await self._check_mounted(key)

    async def put(self, key: str, pieces: Sequence[bytes]) -> tuple[int, ...]:
        """Store these bytes, joined, under this name; return the checksums of their blocks."""
        checksums = BlockChecksums()
        if len(pieces) == 1:
            await asyncio.to_thread(checksums.add, pieces[0])
            await self._store.put(blob_key(key), pieces[0])
            await self._check_mounted(key)
        else:
            await self.keep(await asyncio.to_thread(self._write, pieces, checksums), key)
        return checksums.finish()

    async def size(self, key: str) -> int:
        """How many bytes a blob has."""
        return await self._store.size(blob_key(key))

    async def file(self, key: str) -> "BlobFile":
        """A blob as a local file, which exists as long as the result is referenced."""
        path = self._store.local_path(blob_key(key))
        if path is not None:
            return BlobFile(path, await self.size(key))

        async def load() -> tuple[BlobFile, int]:
            copy = await self._copy(key)
            return copy, copy.size

        return await self._copies.get(key, load)

    async def check(self, key: str, blob: "BlobFile", digest: str) -> None:
        """ObjectDamaged if the bytes of a blob do not have this digest.

        Each call reads the whole blob, since it may have been damaged since the last one.
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
        """All of a blob; ObjectDamaged if its bytes do not have this digest."""
        if self._store.local_path(blob_key(key)) is not None:
            data = await self._store.get(blob_key(key))
        else:
            copy = await self.file(key)
            data = await asyncio.to_thread(copy.path.read_bytes)
        if await asyncio.to_thread(digest_of, data) != digest:
            raise self._other_digest(key, len(data))
        return data

    def _other_digest(self, key: str, size: int) -> ObjectDamaged:
        self._copies.forget(key)  # it may be only the copy that is damaged
        return ObjectDamaged(
            blob_key(key), f"its {size} bytes do not have the digest of those that were stored"
        )

    async def remove(self, key: str) -> None:
        """Delete a blob."""
        await self._store.delete([blob_key(key)])

    async def close(self) -> None:
        """Drop the local copies."""
        await self._copies.close()

    async def _check_mounted(self, key: str) -> None:
        """Delete a blob that was written to an empty folder because the disk of the store is not mounted."""
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
    """The pieces, with small ones joined into larger ones."""
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
    """Computes the CRC-32 of each block of some bytes. Blocking: for threads."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._current = 0
        self._room = BLOCK_BYTES

    def add(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(data)
        while view:
            some = view[: self._room]
            self._current = crc32(some, self._current)
            self._room -= len(some)
            view = view[len(some) :]
            if not self._room:
                self._end_block()

    def finish(self) -> tuple[int, ...]:
        """The checksums of all blocks after the last bytes; the last block may be shorter."""
        if self._room < BLOCK_BYTES:
            self._end_block()
        return tuple(self._done)

    def _end_block(self) -> None:
        self._done.append(self._current)
        self._current, self._room = 0, BLOCK_BYTES


class BlobFile:
    """A file with the bytes of a blob; a copy is removed when this object is garbage-collected."""

    def __init__(self, path: Path, size: int, is_copy: bool = False) -> None:
        self.path = path
        self.size = size
        if is_copy:
            weakref.finalize(self, path.unlink, missing_ok=True)

    def digest(self) -> str:
        """The SHA-256 of its bytes. Blocking: for a thread."""
        with self.path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class BlobWriter:
    """A blob that is being written; it gets its name when it is complete. Blocking: for threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._file = path.open("xb", buffering=0)

    @property
    def digest(self) -> str:
        """The SHA-256 of its bytes so far."""
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
        """Close and remove the temporary file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def made_at(key: str) -> int:
    """When a blob got its name, in microseconds since 1970, by the ULID in the name."""
    return keys.made_at(key) or 0
