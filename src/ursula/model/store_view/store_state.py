"""How far a group is stored, and in what: what flushes, merges and collections change of its state."""

from collections.abc import Iterator, MutableMapping

from msgspec import Struct

from ..commands import StoredSegment, StoredState
from ..ordered import TimeIndex


class Replaced(Struct, array_like=True, frozen=True, gc=False):
    """An object that nothing needs since then: it is deleted when everyone who may still read it is gone."""

    position: int
    at: int


def blob_key(blob: str) -> str:
    """The key of a blob. `cold.objects.keys`, which the model does not import, has the same one."""
    return f"blobs/{blob}"


class ReplacedObjects(MutableMapping[str, Replaced]):
    """The objects that nothing needs, by key; `by_time` has the keys by when that began."""

    def __init__(self) -> None:
        self._by_key: dict[str, Replaced] = {}
        self.by_time = TimeIndex()

    def __getitem__(self, key: str) -> Replaced:
        return self._by_key[key]

    def __setitem__(self, key: str, replaced: Replaced) -> None:
        if key in self._by_key:
            del self[key]
        self._by_key[key] = replaced
        self.by_time.add(replaced.at, key)

    def __delitem__(self, key: str) -> None:
        self.by_time.remove(self._by_key.pop(key).at, key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)


class StoreState:
    """What the store has of this group."""

    def __init__(self) -> None:
        self.flushed = 0  # everything up to here is stored
        self.chain: tuple[StoredState, ...] = ()  # a base and what changed after it
        self.ahead: StoredSegment | None = (
            None  # the segment of a manifest whose `Flushed` is yet to be replayed
        )
        self.replaced = ReplacedObjects()
        self.bodies: list[tuple[int, str]] = []  # blobs of messages that no segment has yet, by position
        self.horizon = 0  # what is older than this may be gone


class GroupRow(Struct, array_like=True, forbid_unknown_fields=True):
    """The same, with what else a group has of its own, as it was at a cut. Encoded as a msgpack array."""

    version: int
    group: int
    position: int
    at: int
    flushed: int
    horizon: int
    chain: tuple[StoredState, ...]
    bodies: list[tuple[int, str]]


GROUP_ROW_VERSION = 1
