"""How long the log of a group is: the sizes of its entries.

A node knows the sizes of the entries that it has followed. Those from before its start are still in the log:
they are listed and read once, when the log is first trimmed here. Otherwise every new keeper would take the
log for empty, and neither trim it down to the entries that are kept nor notice that it is too long.
"""

from collections import deque

from aetcd import rpc

from ursula.etcd.client import EtcdClient
from ursula.log.etcd.entry_pages import list_entries
from ursula.log.etcd.keys import GroupKeys
from ursula.log.interface import COUNTER_MASK

ENTRIES_AT_ONCE = 16
"""How many entries are read at a time, of about 128 KiB, to learn their sizes."""

SIZES_SECONDS = 5.0


class LogSize:
    """The sizes of the entries of a group."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._sizes: deque[tuple[int, int]] = deque()
        self._follows_after: int | None = None
        self._has_all = False
        self.bytes = 0
        """The size of the log, as far as it is known."""
        self.last = base
        """The position of the last known entry."""

    def follow(self, after: int) -> None:
        """Note that the entries after a position are followed from now on."""
        if self._follows_after is None:
            self._follows_after = self.last = max(after, self._base)

    def add(self, position: int, size: int) -> None:
        """Note an entry that was followed."""
        if position > self.last:
            self.last = position
            self._sizes.append((position, size))
            self.bytes += size

    def trim(self, upto: int) -> None:
        """Forget the entries up to a position."""
        while self._sizes and self._sizes[0][0] <= upto:
            self.bytes -= self._sizes.popleft()[1]

    def kept_after(self, kept_bytes: int) -> int | None:
        """The position after which the last entries are that have so many bytes; None if all of them have."""
        total = 0
        for position, size in reversed(self._sizes):
            total += size
            if total > kept_bytes:
                return position
        return None

    async def find_earlier(self, client: EtcdClient, keys: GroupKeys) -> None:
        """Learn the sizes of the entries from before those that are followed.

        Raises EtcdUnavailable or EtcdRefused.
        """
        if self._has_all or self._follows_after is None:
            return
        last = self._follows_after & COUNTER_MASK
        pages = list_entries(client, keys)
        listed = [(entry.mod_revision, entry.key) async for page in pages for entry in page]
        earlier = sorted(entry for entry in listed if entry[0] <= last)
        found: list[tuple[int, int]] = []
        for start in range(0, len(earlier), ENTRIES_AT_ONCE):
            part = earlier[start : start + ENTRIES_AT_ONCE]
            reads = [rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for _, key in part]
            answer = await client.call(lambda one: one.kv.Txn, rpc.TxnRequest(success=reads), SIZES_SECONDS)
            entries = [entry for response in answer.responses for entry in response.response_range.kvs]
            found += [(self._base + entry.mod_revision, len(entry.value)) for entry in entries]
        if not self._has_all:  # otherwise another caller was faster
            self._has_all = True
            self._sizes.extendleft(reversed(found))
            self.bytes += sum(size for _, size in found)
