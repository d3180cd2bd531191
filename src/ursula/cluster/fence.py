"""A restore ends the log of the generation before it, so that no node of the cluster writes to it any more.

etcd notes which store its log goes with, so that restoring a copy of the store does not end the log of the
cluster that goes on with the original.
"""

import tempfile
from pathlib import Path

from aetcd import rpc

from ..config import ClusterSettings, ServerSettings
from ..etcd.client import EtcdClient, EtcdRefused, EtcdUnavailable
from ..log.etcd.log import EtcdLogs
from ..log.interface import LogUnavailable
from .failures import ClusterRefused
from .settings import key_prefix, member_settings, tls_files

OPTION = "--log-is-gone"
CALL_SECONDS = 5.0


async def note_store(client: EtcdClient, prefix: str, place: str) -> None:
    """Note which store the log goes with. Raises EtcdUnavailable or EtcdRefused."""
    request = rpc.PutRequest(key=_store_key(prefix), value=place.encode())
    await client.call(lambda member: member.kv.Put, request, CALL_SECONDS)


async def fence_log(
    server: ServerSettings, cluster: ClusterSettings, place: str, generation: int, groups: int
) -> None:
    """Begin the log of a generation in the etcd of the cluster, if it goes with the store at this place.

    Raises ClusterRefused if that is impossible. It can be repeated, and it changes nothing twice.
    """
    settings = member_settings(server, cluster)
    addresses = [settings.address, *settings.others]
    with tempfile.TemporaryDirectory(prefix="ursula-") as folder:
        tls = tls_files(server, cluster, Path(folder))
        client = EtcdClient(addresses, None if tls is None else tls.credentials())
        try:
            await client.find_leader()
            await _fence(client, key_prefix(cluster), place, generation, groups)
        except (LogUnavailable, EtcdUnavailable, EtcdRefused) as error:
            raise ClusterRefused(
                f"the log of the cluster {cluster.name} in etcd at {', '.join(addresses)} cannot be ended "
                f"({error}), so nodes may still write to it: start most of the nodes, and restore with "
                "--take-over while they run and etcd accepts writes. If the folders of etcd are lost for "
                f"good, add {OPTION}"
            ) from None
        finally:
            await client.close()


async def _fence(client: EtcdClient, prefix: str, place: str, generation: int, groups: int) -> None:
    logs = EtcdLogs(client, prefix, generation, "restore")
    found = await logs.find_generation()
    noted = await _noted_place(client, prefix)
    if found is None or found > generation:
        has = "has no log of that name" if found is None else f"has its log in generation {found} already"
        raise ClusterRefused(
            f"cannot restore to generation {generation}: etcd {has}: check --config. If etcd's data is lost "
            f"for good, add {OPTION}"
        )
    if noted != place:
        raise ClusterRefused(
            f"the log in etcd belongs to another store ({noted}), not to {place}: check --config, or run "
            f"this on the machine of a node. To restore a copy of a store, add {OPTION}"
        )
    while found < generation:
        await logs.create(groups, instead_of=found)
        found = await logs.find_generation() or 0


async def _noted_place(client: EtcdClient, prefix: str) -> str:
    request = rpc.RangeRequest(key=_store_key(prefix))
    found = (await client.call(lambda member: member.kv.Range, request, CALL_SECONDS)).kvs
    return found[0].value.decode() if found else "unknown"


def _store_key(prefix: str) -> bytes:
    return f"{prefix}store".encode()
