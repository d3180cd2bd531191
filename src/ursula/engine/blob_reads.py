"""Messages that are in blobs: what lies side by side is fetched together."""

from collections.abc import Iterator, Sequence

from ..cold.cache import Cache
from ..cold.store import Store
from ..model.part import Part

RUN_BYTES_MAX = 4 * 1024 * 1024
"""So much is fetched at once, unless one message is larger."""


class BlobReads:
    """Parts of the blobs of a store."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    async def fetch(self, parts: Sequence[Part]) -> list[bytes]:
        """The bytes of these parts."""
        found: list[bytes] = []
        for run in _runs(parts):
            blob, start = run[0].blob, run[0].start
            data = await self._range(f"blobs/{blob}", start, run[-1].end)
            if len(run) == 1:
                found.append(data)
            else:
                found += [data[part.start - start : part.end - start] for part in run]
        return found

    async def _range(self, key: str, start: int, end: int) -> bytes:
        async def load() -> tuple[bytes, int]:
            data = bytes(await self._store.get_range(key, start, end))
            return data, len(data)

        return await self._cache.get((key, start, end), load)


def _runs(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts, with neighbours together."""
    run: list[Part] = []
    for part in parts:
        if run:
            first, last = run[0], run[-1]
            if part.blob != last.blob or part.start != last.end or part.end - first.start > RUN_BYTES_MAX:
                yield run
                run = []
        run.append(part)
    if run:
        yield run
