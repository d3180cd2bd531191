"""How far a group is stored, and in what: what flushes, merges and collections change of its state."""

from msgspec import Struct

from .commands import StoredSegment, StoredState


class Replaced(Struct, array_like=True, frozen=True, gc=False):
    """An object that nothing needs since then: it is deleted when everyone who may still read it is gone."""

    position: int
    at: int


class Stored:
    """What the store has of this group."""

    def __init__(self) -> None:
        self.flushed = 0  # everything up to here is stored
        self.chain: tuple[StoredState, ...] = ()  # a base and what changed after it
        self.ahead: StoredSegment | None = (
            None  # the segment of a manifest whose `Flushed` is yet to be replayed
        )
        self.replaced: dict[str, Replaced] = {}
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
