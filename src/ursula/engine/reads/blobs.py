"""Messages that are in blobs: neighbours are fetched together, and checked before they are returned."""

import asyncio
from collections.abc import Iterator, Sequence

from ...cold.blobs import BLOCK_BYTES, BlockChecksums
from ...cold.cache import Cache
from ...cold.objects.store import ObjectDamaged, Store
from ...model.stream.blob_slice import BlobSlice, Blocks

RUN_BYTES_MAX = 4 * 1024 * 1024
"""How much is fetched at once, unless one message is larger."""


class BlobReads:
    """Reads slices of the blobs of a store."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    async def fetch(self, slices: Sequence[BlobSlice]) -> list[bytes]:
        """The bytes of these slices; ObjectDamaged if they are not the bytes that were stored."""
        found: list[bytes] = []
        for run in _runs(slices):
            start, end = _whole_blocks(run)
            data = await self._range(f"blobs/{run[0].blob}", start, end, run[0].blocks)
            found += [data[one.start - start : one.end - start] for one in run]
        return found

    async def _range(self, key: str, start: int, end: int, blocks: Blocks | None) -> bytes:
        async def load() -> tuple[bytes, int]:
            data = bytes(await self._store.get_range(key, start, end))
            if blocks is not None:
                await asyncio.to_thread(_check, key, data, start, blocks)
            return data, len(data)

        return await self._cache.get((key, start, end), load)


def _whole_blocks(run: Sequence[BlobSlice]) -> tuple[int, int]:
    """The range of a blob, in whole blocks, that must be read so that it can be checked."""
    start, end, blocks = run[0].start, run[-1].end, run[0].blocks
    if blocks is None:
        return start, end
    return start - start % BLOCK_BYTES, min(end + -end % BLOCK_BYTES, blocks.size)


def _check(key: str, data: bytes, start: int, blocks: Blocks) -> None:
    """Raise ObjectDamaged unless these whole blocks match their checksums. Blocking: for a thread."""
    found = BlockChecksums()
    found.add(data)
    first = start // BLOCK_BYTES
    for number, checksum in enumerate(found.finish(), first):
        if checksum != blocks.checksums[number]:
            begin = number * BLOCK_BYTES
            raise ObjectDamaged(key, f"its bytes from {begin} on differ from those that were stored")


def _runs(slices: Sequence[BlobSlice]) -> Iterator[list[BlobSlice]]:
    """The slices in runs of neighbours."""
    run: list[BlobSlice] = []
    for one in slices:
        if run:
            first, last = run[0], run[-1]
            if one.blob != last.blob or one.start != last.end or one.end - first.start > RUN_BYTES_MAX:
                yield run
                run = []
        run.append(one)
    if run:
        yield run
