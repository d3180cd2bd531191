"""Entries that are too large for the log: they are stored as blobs first, and the log has their names.

Any command may be that large: a bulk write with very many objects, or one row of it. The state keeps the blob
of an applied entry until a flush has stored everything up to it, as it keeps the blobs of large bodies.
"""

import asyncio
import logging

from ...cold.objects.checksum import digest_of
from ...cold.objects.keys import blob_key, made_at, new_blob
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store, StoreUnavailable
from ...log.interface import EntriesTrimmed
from ...model.codec.entry import DecodedEntry, StoredEntry, decode

RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class LargeEntries:
    """Stores and fetches the large entries of one group."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def name(self, at: int, payload: bytes) -> StoredEntry:
        """A new name for an entry of this time."""
        return StoredEntry(at, new_blob("-", "entries"), digest_of(payload))

    async def put(self, entry: StoredEntry, payload: bytes) -> None:
        """Store an entry; raises StoreFailed."""
        await self._store.put(blob_key(entry.blob), payload)

    async def get(self, entry: StoredEntry, position: int) -> DecodedEntry:
        """Fetch an entry. Waits while the store cannot be reached, since no entry may be skipped.

        If the entry is gone, others have collected it, and this node has fallen behind.
        """
        key, problem = blob_key(entry.blob), None
        while True:
            try:
                payload = await self._store.get(key)
                break
            except ObjectMissing:
                raise EntriesTrimmed(position - 1, position) from None
            except StoreUnavailable as error:
                if problem is None:
                    logger.error("an entry of the log is in the store, and cannot be read: %s", error)
                problem = error
                await asyncio.sleep(RETRY_SECONDS)
        if digest_of(payload) != entry.digest:
            raise ObjectDamaged(key, "its digest is not the one in the log")
        return decode(payload)


def stored_at(entry: StoredEntry) -> int:
    """When the entry was stored."""
    return made_at(blob_key(entry.blob)) or 0
