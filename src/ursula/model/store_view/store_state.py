"""What the state knows about the store: how far the group is flushed, and into which objects."""

from collections.abc import Iterator, MutableMapping

from msgspec import Struct

from ..commands import StoredSegment, StoredState
from ..ordered import TimeIndex


class Replaced(Struct, array_like=True, frozen=True, gc=False):
    """When nothing needed an object any more. It is deleted once no reader can still be using it."""

    position: int
    at: int


def blob_key(blob: str) -> str:
    """The key of a blob. `cold.objects.keys` builds the same key; the model may not import it."""
    return f"blobs/{blob}"


class ReplacedObjects(MutableMapping[str, Replaced]):
    """The replaced objects by key; `by_time` has their keys in the order of replacement."""

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
    """The part of this group that the store has."""

    def __init__(self) -> None:
        self.flushed = 0  # the position up to which everything is stored
        self.chain: tuple[StoredState, ...] = ()  # the state objects: a base, and the changes after it
        # The segment of the manifest that was loaded, until its `Flushed` is replayed from the log:
        self.ahead: StoredSegment | None = None
        self.replaced = ReplacedObjects()
        self.bodies: list[tuple[int, str]] = []  # blobs with messages that no segment has yet, by position
        self.horizon = 0  # objects made before this time may have been collected
        # The following are not stored: the log after a manifest leads to them again.
        self.merged_at = 0  # the position of the last merge: until it is flushed, manifests name its inputs
        self.flush_requested_at = 0  # the position of the last request for a flush
        self.base_requested_at = 0  # the position of the last request for a base; 0 once there is one


class GroupRow(Struct, array_like=True, forbid_unknown_fields=True):
    """The group's own row: `StoreState`, position and time as of a cut. Encoded as a msgpack array."""

    version: int
    group: int
    position: int
    at: int
    flushed: int
    horizon: int
    chain: tuple[StoredState, ...]
    bodies: list[tuple[int, str]]
    entry_count: int = 0  # since version 2, as is the next one
    entries_hash: bytes = b""


GROUP_ROW_VERSION = 2
