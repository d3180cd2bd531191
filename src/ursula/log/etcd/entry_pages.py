"""Lists the entries of a group that etcd holds, a page at a time.

A long log has more keys than etcd can list within the time of a call. Pages are in the order of the keys:
for any other order, and for a range of revisions, etcd would read all entries for each page.
"""

from collections.abc import AsyncIterator

from aetcd import rpc

from ursula.etcd.client import EtcdClient
from ursula.log.etcd.keys import GroupKeys

KEYS_AT_ONCE = 10_000
LIST_SECONDS = 5.0


async def list_entries(
    client: EtcdClient, keys: GroupKeys, revision: int = 0
) -> AsyncIterator[list[rpc.KeyValue]]:
    """Pages of the entries without their values, as of a revision or else of now.

    Raises EtcdUnavailable, or EtcdRefused if the revision is compacted meanwhile.
    """
    start = keys.entries
    while True:
        request = rpc.RangeRequest(
            key=start, range_end=keys.entries_end, keys_only=True, limit=KEYS_AT_ONCE, revision=revision
        )
        answer = await client.call(lambda member: member.kv.Range, request, LIST_SECONDS)
        yield list(answer.kvs)
        if not answer.more:
            return
        start = answer.kvs[-1].key + b"\0"
