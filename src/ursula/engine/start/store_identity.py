"""The identity of a store: a node uses only a store of its own cluster and generation that fits its log.

A store names its cluster and its generation in `generations/{n}.json`. A restore begins the next generation,
which fences the node of the previous one.
"""

from ...cold.objects import keys
from ...cold.objects.store import ObjectDamaged, Store, StoreUnavailable, not_what_it_was
from ...cold.state import manifest as manifests
from ...cold.state.generation_history import Lineage
from ...log.interface import COUNTER_MASK
from ..failures import Superseded
from .data_folder import Identity
from .load_state import LoadedState, StoreRefused


async def enter_store(store: Store, identity: Identity, now: int, *, is_new: bool) -> Lineage:
    """Begin the first generation in an empty store; reject one of another cluster or of another generation.

    `is_new` says that the node has never written a log. Returns the lineage of the store's generations.
    """
    try:
        found = await manifests.read_generations(store)
    except ObjectDamaged as error:
        raise StoreRefused(f"{error}: {manifests.GENERATION_HINT}") from None
    if not found and identity.generation == 1:
        await _begin_store(store, identity, now, is_new)
        found = await manifests.read_generations(store)
    if any(generation.cluster != identity.cluster for generation in found):
        raise StoreRefused(
            f"the store {store.root} belongs to the cluster {found[-1].cluster}, and this data folder to "
            f"{identity.cluster}: choose another cold.root, or make a node from the store with "
            "`ursula restore`"
        )
    if found and found[-1].groups != identity.groups:
        raise StoreRefused(
            f"the store {store.root} has {found[-1].groups} groups, and ursula.json of this data folder says "
            f"{identity.groups}: put that file back from a backup"
        )
    newest = manifests.newest_generation(found)
    if newest != identity.generation:
        raise StoreRefused(
            f"the store {store.root} is in generation {newest}, and this data folder in "
            f"{identity.generation}: a restore made a new node that continues from it; see `ursula restore`"
        )
    return Lineage({one.generation: one.ended for one in found}, identity.generation)


async def _begin_store(store: Store, identity: Identity, now: int, is_new: bool) -> None:
    """Write the first object. A new node fails at once if its own disk does not accept it."""
    own = manifests.Generation(manifests.FORMAT, identity.cluster, identity.generation, identity.groups, now)
    try:
        await store.create(keys.generation_key(1), manifests.encode(own))
    except StoreUnavailable as error:
        if is_new and store.local_range() is not None:
            raise StoreRefused(f"cannot begin the store: {error}") from None
        raise


async def check_generation(store: Store, own: int) -> manifests.Generation:
    """The generation that the store is in; Superseded if it is later than that of this node."""
    found = await manifests.read_generations(store)
    newest = manifests.newest_generation(found)
    if newest > own:
        hint = "Stop this node; its data folder has the writes from after the restore began"
        if found[-1].etcd:
            hint = "Start this node again: it continues in that generation"
        raise Superseded(
            f"the store is in generation {newest}, and this node in {own}: it was restored elsewhere. {hint}"
        )
    if newest < own:
        raise not_what_it_was(store, keys.generation_key(own))
    return found[-1]


def check_fit(first: int, tail: int, loaded: LoadedState | None) -> None:
    """Refuse to start from a log that does not continue the store; it has the entries after `first`."""
    if loaded is None:
        if first & COUNTER_MASK:
            raise StoreRefused(
                f"the log begins after position {first}, and the store has no manifest of those before it: "
                "is cold.root, or cold.s3_bucket, the one that this node always had?"
            )
        return
    position = loaded.manifest.position
    if not first <= position <= tail:
        raise StoreRefused(
            f"the store has everything up to position {position}, and the log has ({first}, {tail}]: they do "
            "not fit. Put the log back from a backup, or make a new node from the store with `ursula restore`"
        )
