"""What a group starts from: the newest manifest, and a log that has everything after it."""

from ...cold.objects.store import ObjectMissing, Store
from ...cold.state import manifest as manifests
from ...log.interface import Log
from .load_state import LoadedState, load_newest
from .store_identity import check_fit


async def load_protected(store: Store, group: int, log: Log) -> LoadedState | None:
    """Load the newest manifest while the log keeps the entries after it.

    In a cluster, other nodes flush, trim and collect meanwhile. If one of them was faster, there is a newer
    manifest now, and that one is loaded. If there is none, store and log do not fit: StoreRefused.
    """
    while True:
        found = await manifests.find_manifests(store, group)
        newest = found[0].position if found else 0
        await log.protect(newest)
        try:
            loaded = await load_newest(store, group, log.first)
        except ObjectMissing:
            if await _is_newest(store, group, newest):
                raise
            continue
        first = await log.protect(newest if loaded is None else loaded.manifest.position)
        if (loaded is None or loaded.manifest.position >= first) or await _is_newest(store, group, newest):
            check_fit(first, await log.tail(), loaded)
            return loaded


async def _is_newest(store: Store, group: int, position: int) -> bool:
    found = await manifests.find_manifests(store, group)
    return (found[0].position if found else 0) == position
