"""The small objects that say what the large ones are: manifests, generations and live lists, all JSON.

A manifest tells what makes up a group at a cut: the state objects (a base and what changed after it), the
segment of the last flush, and the manifest before. A generation tells when, and from what, the positions of a
log began anew. A live list is for readers outside the server: the segments that are the bucket's history now.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from .store import ObjectDamaged, ObjectMissing, Store, StoreUnavailable
from .ulid import milliseconds_of, new_ulid

FORMAT = 1
GENERATION_HINT = (
    "put it back from a copy of the store, as a backup or what `ursula pipeline backup` made; without it "
    "nothing can be started or restored from the store"
)
"""What to do about a generation that cannot be read: nothing but the same object helps."""


class SegmentFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment, as manifests name it."""

    first: int
    last: int
    path: str
    rows: int
    bytes: int
    payload_bytes: int
    footer_bytes: int
    footer_crc: int
    digest: str


class StateFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A state object, as manifests name it."""

    path: str
    base: bool
    rows: int
    bytes: int
    digest: str


class Manifest(msgspec.Struct, frozen=True):
    """What makes up a group at the position of a cut."""

    format: int
    cluster: str
    generation: int
    group: int
    start: int
    position: int
    at: int
    segment: SegmentFacts | None
    state: list[StateFacts]
    previous: str | None


class Generation(msgspec.Struct, frozen=True):
    """When positions began anew, and from which manifest, if from one."""

    format: int
    cluster: str
    generation: int
    groups: int
    at: int
    source: str | None = None
    ended: dict[str, int] = {}
    """By group: the last position of the generation before that still counts."""


class LiveSegment(msgspec.Struct, frozen=True):
    """A segment, as readers outside see it; the path is from the root."""

    path: str
    first: int
    last: int
    rows: int
    bytes: int


class LiveList(msgspec.Struct, frozen=True):
    """The segments that are the history of a group up to a position."""

    cluster: str
    generation: int
    group: int
    position: int
    segments: list[LiveSegment]


Document = TypeVar("Document", Manifest, Generation, LiveList)


class FoundManifest(NamedTuple):
    """A manifest that is there, by its name."""

    position: int
    key: str
    size: int


def segment_key(group: int, first: int, last: int) -> str:
    """A name for the segment of these positions that no other object has."""
    return f"segments/g{group}/{first:020d}-{last:020d}-{new_ulid()}.parquet"


def state_key(group: int, position: int) -> str:
    """A name for state rows as of this position."""
    return f"state/g{group}/{position:020d}-{new_ulid()}.parquet"


def manifest_key(group: int, position: int) -> str:
    """A name for a manifest."""
    return f"manifests/g{group}/{position:020d}-{new_ulid()}.json"


def live_key(group: int) -> str:
    """The name of the live list of a group."""
    return f"live/g{group}.json"


def generation_key(generation: int) -> str:
    """The name of what tells of a generation."""
    return f"generations/{generation}.json"


def ulid_of(key: str) -> str | None:
    """The ULID in the name of an object; None if it has none."""
    name = key.rpartition("/")[2].partition(".")[0].rpartition("-")[2]
    return name if len(name) == 26 else None


def encode(document: msgspec.Struct) -> bytes:
    """A document as it is stored."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


async def find_manifests(store: Store, group: int) -> list[FoundManifest]:
    """All manifests of a group, newest first."""
    found = []
    for stored in await store.list(f"manifests/g{group}/"):
        position = stored.key.rpartition("/")[2].partition("-")[0]
        if position.isascii() and position.isdigit() and stored.key.endswith(".json"):
            found.append(FoundManifest(int(position), stored.key, stored.size))
    return sorted(found, reverse=True)


async def read_manifest(store: Store, key: str) -> Manifest:
    """A manifest; ObjectDamaged if it cannot be read."""
    return _decode(key, await store.get(key), Manifest)


async def last_at(store: Store, found: Sequence[FoundManifest], time: int) -> int:
    """Which manifest, of these from the newest on, is the last at or before a time; their count if none is.

    It may be one that cannot be read. Of those that were written later, only one that can be read counts.
    """
    number = len(found)
    for index, one in enumerate(found):
        if _was_written_before(one.key, time):  # and the cut that it is of was earlier still
            number = index
            break
    for index in range(number - 1, -1, -1):
        try:
            manifest = await read_manifest(store, found[index].key)
        except (ObjectDamaged, ObjectMissing):
            continue
        if manifest.at > time:
            break
        number = index
    return number


async def read_generations(store: Store) -> list[Generation]:
    """All generations that ever began in this store, oldest first."""
    found = [
        _decode(stored.key, await store.get(stored.key), Generation)
        for stored in await store.list("generations/")
        if stored.key.endswith(".json")
    ]
    return sorted(found, key=lambda generation: generation.generation)


async def read_live(store: Store, group: int) -> LiveList:
    """The live list of a group."""
    key = live_key(group)
    return _decode(key, await store.get(key), LiveList)


def not_what_it_was(store: Store, missing: str) -> StoreUnavailable:
    """The failure of a store in which something is missing that is always there."""
    return StoreUnavailable(
        f"the store {store.root} has no {missing}, so it is not what it was: is its disk mounted?"
    )


def newest_generation(generations: Sequence[Generation]) -> int:
    """The highest number; 0 if there is none."""
    return max((found.generation for found in generations), default=0)


def _was_written_before(key: str, time: int) -> bool:
    """Whether an object got its name before a time; not if that was in the same millisecond."""
    return (milliseconds_of(ulid_of(key) or "0") + 1) * 1000 <= time


def _decode(key: str, data: bytes, kind: type[Document]) -> Document:
    try:
        document = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ObjectDamaged(key, str(error)) from None
    version = getattr(document, "format", FORMAT)
    if version != FORMAT:
        raise ObjectDamaged(key, f"it has format {version}, and this version of ursula reads format {FORMAT}")
    return document
