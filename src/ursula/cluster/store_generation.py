"""What the store says of its cluster: which generation it is in, and whether an etcd may be begun for it.

An etcd is begun once for the first generation, and once more for each that was restored because the etcd
before was lost. Any other restored generation continues in the etcd that there is.
"""

from ..cold.objects import keys
from ..cold.objects.store import Store
from ..cold.state import manifest as manifests
from ..cold.state.manifest import Generation, NewEtcd
from ..log.interface import GENERATION_SHIFT
from .failures import ClusterRefused


async def may_begin_etcd(store: Store, attempt: str, name: str, groups: int, now: int) -> bool:
    """Whether this attempt may begin an etcd: the first attempt that creates the object, and no other."""
    first = Generation(manifests.FORMAT, attempt, 1, groups, now, etcd=name)
    if await store.create(keys.generation_key(1), manifests.encode(first)):
        return True
    newest = (await manifests.read_generations(store))[-1]
    if newest.etcd != name:
        return False
    if newest.generation == 1:
        return newest.cluster == attempt
    if not newest.log_is_gone:
        return False
    key = keys.new_etcd_key(newest.generation)
    if await store.create(key, manifests.encode(NewEtcd(attempt))):
        return True
    return manifests.decode(key, await store.get(key), NewEtcd).attempt == attempt


async def find_generations(store: Store, name: str) -> list[Generation]:
    """The generations of the store, oldest first; none before the cluster begins. Raises ClusterRefused."""
    found = await manifests.read_generations(store)
    if found and found[-1].etcd != name:
        owner = f"the cluster {found[-1].etcd}" if found[-1].etcd else "a single node"
        raise ClusterRefused(
            f"the store {store.root} belongs to {owner}, and not to the cluster {name}: check cluster.name, "
            "cold.root and cold.s3_bucket"
        )
    return found


async def has_entries(store: Store, generation: Generation) -> bool:
    """Whether the store has anything from the log of a generation, beyond what it was restored from."""
    base = generation.generation << GENERATION_SHIFT
    for group in range(generation.groups):
        found = await manifests.find_manifests(store, group)
        if found and found[0].position > base:
            return True
    return False
