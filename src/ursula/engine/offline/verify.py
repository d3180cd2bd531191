"""Verifies that a store has everything that its manifests name: every object, and every byte of every stream.

It needs only the store, not a server. Damage is reported object by object; an exception is raised only if the
store cannot be reached.
"""

import asyncio
import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ...cold.objects.checksum import digest_of
from ...cold.objects.keys import BLOBS, blob_key, segments_prefix
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store
from ...cold.segment.report import Range, SegmentReport, examine, unreadable
from ...cold.state.manifest import Manifest
from ...model.commands import StoredSegment
from ...model.state import State
from ...model.stream.row import StreamRow, read_row
from ..start.load_state import LoadedState

SEGMENTS_AT_ONCE = 4
"""How many segments are fetched and read at the same time."""
BLOB_STEP_BYTES = 8 << 20


class Progress(Protocol):
    """Shows the progress of long work, in bytes or objects."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""


class Damage(NamedTuple):
    """A problem with an object, named by its key, or with a stream."""

    name: str
    problem: str


class Extent(NamedTuple):
    """How much data there is."""

    buckets: int = 0
    streams: int = 0
    segments: int = 0
    segment_bytes: int = 0
    rows: int = 0
    payload_bytes: int = 0
    blobs: int = 0
    blob_bytes: int = 0

    def plus(self, other: "Extent") -> "Extent":
        """The sum of both."""
        return Extent(*(mine + others for mine, others in zip(self, other, strict=True)))


class Blob(NamedTuple):
    """An application snapshot of a stream, or of a deleted stream that may be undeleted."""

    key: str
    size: int
    digest: str


class Need(NamedTuple):
    """Bytes of a stream that must be readable: for the stream itself, or for a fork that shares them."""

    bucket: str
    stream: str
    incarnation: str
    start: int
    end: int


def extent_of(state: State) -> Extent:
    """How much data a state has."""
    segments, blobs = all_segments(state), blobs_of(state)
    return Extent(
        buckets=len(state.buckets),
        streams=sum(len(bucket.names) for bucket in state.buckets.values()),
        segments=len(segments),
        segment_bytes=sum(segment.size for segment in segments),
        rows=sum(segment.rows for segment in segments),
        payload_bytes=sum(segment.payload_bytes for segment in segments),
        blobs=len(blobs),
        blob_bytes=sum(blob.size for blob in blobs),
    )


def all_segments(state: State) -> list[StoredSegment]:
    """The segments of a state by position, including the one of the flush that the manifest completes."""
    ahead = state.stored.ahead
    return [*state.segments, *([] if ahead is None else [ahead])]


def blobs_of(state: State) -> list[Blob]:
    """The snapshots of all streams, including deleted streams as long as they are kept."""
    found: dict[str, Blob] = {}
    for _, _, row in _all_rows(state):
        if row.snapshot is not None:
            _, blob, _, size, digest = row.snapshot
            key = blob_key(blob)
            if blob in state.blobs or key in state.stored.replaced:
                found[key] = Blob(key, size, digest)
    return list(found.values())


async def check_state(store: Store, manifest: Manifest) -> list[Damage]:
    """Check that the state objects of a manifest are the ones that were written."""
    found = []
    for facts in manifest.state:
        try:
            data = await store.get(facts.path)
        except (ObjectMissing, ObjectDamaged) as error:
            found.append(_damage(error))
            continue
        if len(data) != facts.bytes:
            found.append(Damage(facts.path, f"it has {len(data)} bytes instead of {facts.bytes}"))
        elif await asyncio.to_thread(digest_of, data) != facts.digest:
            found.append(Damage(facts.path, "its digest differs from the one in its manifest"))
    return found


async def check_presence(store: Store, loaded: LoadedState, progress: Progress) -> list[Damage]:
    """Check that all objects that a state names exist, with their sizes, without reading them."""
    state = loaded.state
    wanted = [(segment.key, segment.size) for segment in all_segments(state)]
    wanted += [(blob.key, blob.size) for blob in blobs_of(state)]
    sizes = {stored.key: stored.size for stored in await store.list(segments_prefix(state.group))}
    if any(key.startswith(BLOBS) for key, _ in wanted):
        sizes |= {stored.key: stored.size for stored in await store.list(BLOBS)}
    found = []
    for number, (key, size) in enumerate(wanted):
        progress("looking for objects", number + 1, len(wanted))
        if key not in sizes:
            found.append(Damage(key, "it is missing"))
        elif sizes[key] != size:
            found.append(Damage(key, f"it has {sizes[key]} bytes instead of {size}"))
    return found


async def check_contents(
    store: Store, loaded: LoadedState, progress: Progress, examined: "Examined | None" = None
) -> list[Damage]:
    """Read everything that a state names; check checksums and digests, and that no byte is missing."""
    state = loaded.state
    segments, blobs = all_segments(state), blobs_of(state)
    total = sum(segment.size for segment in segments) + sum(blob.size for blob in blobs)
    done, last = 0, 0
    found: list[Damage] = []
    coverage = Coverage()
    async for segment, report in (examined or _examined)(store, segments):
        found += [Damage(segment.key, problem) for problem in report.problems]
        found += _differences(segment, report)
        if segment.first < last:
            found.append(Damage(segment.key, f"its positions begin before {last}, where another ends"))
        last = max(last, segment.last)
        for one in report.ranges:
            if not coverage.add(one):
                found.append(Damage(segment.key, f"it repeats bytes of {one.bucket}/{one.stream}"))
        done += segment.size
        progress("reading segments", done, total)
    for blob in blobs:
        found += await _check_blob(store, blob)
        done += blob.size
        progress("reading snapshots", done, total)
    return found + await asyncio.to_thread(lambda: [*coverage.gaps(state), *_lost_refs(state)])


async def examine_object(store: Store, key: str, segment: StoredSegment | None = None) -> SegmentReport:
    """Read a segment; the report lists what is wrong with it."""
    try:
        data = await store.get(key)
    except (ObjectMissing, ObjectDamaged) as error:
        return unreadable(key, [_damage(error).problem])
    if segment is None:
        return await asyncio.to_thread(examine, key, data)
    return await asyncio.to_thread(examine, key, data, segment.digest, segment.footer_crc)


Examined = Callable[[Store, Sequence[StoredSegment]], AsyncIterator[tuple[StoredSegment, SegmentReport]]]
"""A function that reads segments and yields their reports in order."""


class Coverage:
    """Which bytes of which streams the segments have; segments are added in the order of their positions."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, str, str], list[int]] = {}

    def add(self, one: Range) -> bool:
        """Add a range; False if some of it was added before."""
        bounds = self._ends.setdefault(one[:3], [])
        if bounds and one.start < bounds[-1]:
            return False
        if bounds and bounds[-1] == one.start:
            bounds[-1] = one.end
        else:
            bounds += (one.start, one.end)
        return True

    def gaps(self, state: State) -> Iterator[Damage]:
        """The bytes that streams should have but no segment has."""
        reported = set()
        for need in needs_of(state):
            for start, end in self._missing(need):
                gap = need._replace(start=start, end=end)
                if gap not in reported:
                    reported.add(gap)
                    name = f"{need.bucket}/{need.stream}"
                    yield Damage(name, f"no segment has its bytes from {start} up to {end}")

    def _missing(self, need: Need) -> Iterator[tuple[int, int]]:
        bounds = self._ends.get(need[:3], [])
        offset = need.start
        number = bisect_right(bounds, offset)
        if number % 2:  # it is within a range
            offset = bounds[number]
            number += 1
        while offset < need.end:
            start = min(bounds[number], need.end) if number < len(bounds) else need.end
            if start > offset:
                yield offset, start
            offset = bounds[number + 1] if number < len(bounds) else need.end
            number += 2


def needs_of(state: State) -> Iterator[Need]:
    """The bytes that the segments must have, stream by stream, including those of deleted streams."""
    for bucket, name, row in _all_rows(state):
        end = row.tail
        owner: tuple[str, StreamRow] | None = (name, row)
        while owner is not None:
            begin = max(row.earliest, owner[1].fork_offset)
            if begin < end:
                yield Need(bucket, owner[0], owner[1].incarnation, begin, end)
            if row.earliest >= owner[1].fork_offset:
                break
            end = min(end, owner[1].fork_offset)
            owner = _parent(state, bucket, owner[1])


def _all_rows(state: State) -> Iterator[tuple[str, str, StreamRow]]:
    """Bucket, name and row of all streams, and of the deleted streams that may be undeleted."""
    for bucket in state.buckets.values():
        for name in bucket.names:
            row = bucket.row(name)
            if row is not None:
                yield bucket.name, name, read_row(row)
    for tombstone in state.deleted.incarnations.values():
        yield *tombstone.name, read_row(tombstone.row)


def _parent(state: State, bucket: str, row: StreamRow) -> tuple[str, StreamRow] | None:
    """The stream that a fork shares bytes with: a stream, perhaps a hidden one, or a deleted stream."""
    if row.parent is None:
        return None
    name, incarnation = row.parent
    found = state.buckets.get(bucket)
    kept = found.row(name) if found is not None else None
    if kept is not None and (fields := read_row(kept)).incarnation == incarnation:
        return name, fields
    tombstone = state.deleted.find(bucket, name, incarnation)
    return None if tombstone is None else (name, read_row(tombstone.row))


def _lost_refs(state: State) -> Iterator[Damage]:
    """Streams whose references to segments are wrong, although their bytes may be there."""
    for bucket, name, row in _all_rows(state):
        begin = max(row.earliest, row.fork_offset)
        if begin >= row.tail:
            continue
        offsets, positions = row.refs[0::3], row.refs[1::3]
        first = bisect_right(offsets, begin) - 1
        if first < 0:
            yield Damage(f"{bucket}/{name}", f"no reference leads to its byte {begin}")
        for position in positions[max(first, 0) :]:
            if state.segment_at(position) is None:
                yield Damage(f"{bucket}/{name}", f"no segment has position {position}, which it needs")


async def _examined(
    store: Store, segments: Sequence[StoredSegment]
) -> AsyncIterator[tuple[StoredSegment, SegmentReport]]:
    """Reports in order; several segments are read at the same time."""
    under_way: deque[tuple[StoredSegment, asyncio.Task[SegmentReport]]] = deque()
    try:
        for segment in segments:
            task = asyncio.create_task(examine_object(store, segment.key, segment))
            under_way.append((segment, task))
            if len(under_way) >= SEGMENTS_AT_ONCE:
                oldest, work = under_way.popleft()
                yield oldest, await work
        while under_way:
            oldest, work = under_way.popleft()
            yield oldest, await work
    finally:
        for _, work in under_way:
            work.cancel()


def _differences(segment: StoredSegment, report: SegmentReport) -> Iterator[Damage]:
    """How a segment that is intact in itself differs from its description in the state."""
    if report.problems:
        return
    described = (segment.first, segment.last, segment.rows, segment.size, segment.payload_bytes)
    found = (report.first, report.last, report.rows, report.bytes, report.payload_bytes)
    names = ("begins after position", "ends at position", "rows", "bytes", "bytes of messages")
    for name, expected, actual in zip(names, described, found, strict=True):
        if expected != actual:
            yield Damage(segment.key, f"{name}: {actual} instead of {expected}")


async def _check_blob(store: Store, blob: Blob) -> list[Damage]:
    digest = hashlib.sha256()
    try:
        size = await store.size(blob.key)
        if size != blob.size:
            return [Damage(blob.key, f"it has {size} bytes instead of {blob.size}")]
        for start in range(0, size, BLOB_STEP_BYTES):
            digest.update(await store.get_range(blob.key, start, min(size, start + BLOB_STEP_BYTES)))
    except (ObjectMissing, ObjectDamaged) as error:
        return [_damage(error)]
    if f"sha256:{digest.hexdigest()}" != blob.digest:
        return [Damage(blob.key, "its digest differs from the one it was published with")]
    return []


def _damage(error: ObjectMissing | ObjectDamaged) -> Damage:
    return Damage(error.key, "it is missing" if isinstance(error, ObjectMissing) else error.problem)
