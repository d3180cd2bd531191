"""The small objects that name the large ones: manifests, generations and live lists, all JSON.

A manifest names the objects of a group as of a cut: the state objects (a base and the changes after it), the
segment of the last flush, and the previous manifest. A generation says when, and from which manifest, a new
log began. A live list is for readers outside the server: it names the segments that make up the history now.

Each ends with a checksum of its own bytes (`checksum.py`) and must agree with its key, so that a reader gets
either what was written or ObjectDamaged. Objects of early versions have no checksum and are checked against
their key, and against the keys of the objects that they name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...positions import GENERATION_SHIFT
from ..objects import checksum, keys
from ..objects.store import ObjectDamaged, ObjectMissing, Store

FORMAT = 1
GENERATION_HINT = (
    "put it back from a copy of the store, such as a backup by `ursula pipeline backup`; without it "
    "nothing can be started or restored from the store"
)
"""What to do about a generation that cannot be read: nothing but the original object helps."""


class SegmentFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment as a manifest describes it."""

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
    """A state object as a manifest describes it."""

    path: str
    base: bool
    rows: int
    bytes: int
    digest: str


class Manifest(msgspec.Struct, frozen=True):
    """The objects of a group as of a cut."""

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
    """When a generation began, and from which manifest, if any."""

    format: int
    cluster: str
    generation: int
    groups: int
    at: int
    source: str | None = None
    ended: dict[str, int] = {}
    """By group: the last position of the previous generation that counts."""
    etcd: str = ""
    """The name of the cluster whose etcd has the log; empty if a single node has it."""
    log_is_gone: bool = False
    """Whether the restore was told that the etcd before is lost: the log begins in a new one."""


class NewEtcd(msgspec.Struct, frozen=True):
    """The attempt to begin an etcd that the log of a restored generation is in."""

    attempt: str
    format: int = FORMAT


class LiveSegment(msgspec.Struct, frozen=True):
    """A segment as readers outside the server see it; the path is its key."""

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


Document = TypeVar("Document", Manifest, Generation, NewEtcd, LiveList)


class FoundManifest(NamedTuple):
    """A manifest as found by its key."""

    position: int
    key: str
    size: int


def encode(document: msgspec.Struct) -> bytes:
    """A document as it is stored, with its checksum."""
    return checksum.with_checksum(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


async def find_manifests(store: Store, group: int) -> list[FoundManifest]:
    """All manifests of a group, newest first."""
    found = []
    for stored in await store.list(keys.manifests_prefix(group)):
        position = stored.key.rpartition("/")[2].partition("-")[0]
        if position.isascii() and position.isdigit() and stored.key.endswith(".json"):
            found.append(FoundManifest(int(position), stored.key, stored.size))
    return sorted(found, reverse=True)


async def read_manifest(store: Store, key: str) -> Manifest:
    """A manifest; ObjectDamaged if it cannot be read."""
    return decode(key, await store.get(key), Manifest)


async def last_at(store: Store, found: Sequence[FoundManifest], time: int) -> int:
    """The index of the last manifest at or before a time, counted from the newest; `len(found)` if none.

    It may be unreadable. A manifest that was written later counts only if it can be read.
    """
    number = len(found)
    for index, one in enumerate(found):
        if _was_written_before(one.key, time):  # and its cut is even earlier
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
        decode(stored.key, await store.get(stored.key), Generation)
        for stored in await store.list(keys.GENERATIONS)
        if stored.key.endswith(".json")
    ]
    return sorted(found, key=lambda generation: generation.generation)


async def read_live(store: Store, group: int) -> LiveList:
    """The live list of a group."""
    key = keys.live_key(group)
    return decode(key, await store.get(key), LiveList)


def newest_generation(generations: Sequence[Generation]) -> int:
    """The highest number; 0 if there is none."""
    return max((found.generation for found in generations), default=0)


def _was_written_before(key: str, time: int) -> bool:
    """Whether an object got its key before a time, and not in the same millisecond."""
    return (keys.made_at(key) or 0) + 1000 <= time


def decode(key: str, data: bytes, kind: type[Document]) -> Document:
    """The document in the object with this key; ObjectDamaged if it is not what was written."""
    try:
        has_checksum = checksum.has_checksum(data)
        document = msgspec.json.decode(data, type=kind)
        if not has_checksum:
            _check_fields(data, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ObjectDamaged(key, str(error)) from None
    version = getattr(document, "format", FORMAT)
    if version != FORMAT:
        raise ObjectDamaged(key, f"it has format {version}, but this version of ursula reads format {FORMAT}")
    for problem in _PROBLEMS[kind](key, document):
        raise ObjectDamaged(key, problem)
    return document


def _check_fields(data: bytes, kind: type[msgspec.Struct]) -> None:
    """Reject an object without a checksum that has an unknown field: it may be a damaged checksum."""
    unknown = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys() - set(kind.__struct_fields__)
    if unknown:
        raise ValueError(f"it has an unknown field {min(unknown)!r}")


def _manifest_problems(key: str, manifest: Manifest) -> Iterator[str]:
    """Why a manifest cannot be what was written under this key."""
    group, position, segment = manifest.group, manifest.position, manifest.segment
    if not key.startswith(keys.manifest_prefix(group, position)):
        yield f"its group {group} and position {position} do not match its name"
    if manifest.generation != position >> GENERATION_SHIFT:
        yield f"position {position} is not in generation {manifest.generation}"
    if not 0 <= manifest.start <= position:
        yield f"it begins at position {manifest.start} and ends at {position}"
    if segment is not None:
        if (segment.first, segment.last) != (manifest.start, position):
            yield f"its segment has the positions {segment.first} to {segment.last}"
        if not segment.path.startswith(keys.segment_prefix(group, segment.first, segment.last)):
            yield f"the segment {segment.path} is of other positions"
    if not manifest.state or not manifest.state[-1].path.startswith(keys.state_prefix(group, position)):
        yield f"it names no state as of position {position}"
    if [state.base for state in manifest.state] != [True] + [False] * (len(manifest.state) - 1):
        yield "its state objects are not one base and the changes after it"
    if manifest.previous is not None and not manifest.previous.startswith(keys.manifests_prefix(group)):
        yield f"{manifest.previous} is not the name of a manifest"


def _generation_problems(key: str, generation: Generation) -> Iterator[str]:
    """Why a generation cannot be what was written under this key."""
    if key != keys.generation_key(generation.generation):
        yield f"its generation {generation.generation} does not match its name"
    if generation.groups < 1:
        yield f"its number of groups is {generation.groups}"
    for group, position in generation.ended.items():
        source = generation.source or ""
        if source.startswith(keys.manifests_prefix(group)) and not source.startswith(
            keys.manifest_prefix(int(group), position)
        ):
            yield f"it continues {source}, which is not of position {position}"


def _live_problems(key: str, live: LiveList) -> Iterator[str]:
    """Why a live list cannot be what was written under this key."""
    if key != keys.live_key(live.group):
        yield f"its group {live.group} does not match its name"
    for segment in live.segments:
        if not segment.path.startswith(keys.segment_prefix(live.group, segment.first, segment.last)):
            yield f"the segment {segment.path} is of other positions"
    if live.segments and live.segments[-1].last > live.position:
        yield f"its segments reach beyond its position {live.position}"


_PROBLEMS: dict[type, Callable[[str, Any], Iterator[str]]] = {
    Manifest: _manifest_problems,
    Generation: _generation_problems,
    NewEtcd: lambda _key, _document: iter(()),
    LiveList: _live_problems,
}
