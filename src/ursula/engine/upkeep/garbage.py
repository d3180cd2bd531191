"""Garbage collection: removes objects that nothing needs, and announces that in the log beforehand.

`Collect(horizon)` is applied first. From then on `apply` refuses to name an object whose ULID is older than
the horizon. So an older object that nothing names now is never named later, be it a segment that a flush or a
merge has just written, or a snapshot or a large body that is still being written. The named objects are the
live segments, the state objects, visible snapshots, bodies that are not in a segment yet, and every replaced
object that is still kept for readers: it is forgotten only if it was replaced before the horizon, and before
every manifest that is kept.

The manifests that are kept are the last two of a group, the last one from before the horizon, and all later
ones: the one from before the horizon describes the group as of the horizon, however long before that the last
flush was.

So each of these finds the objects that it names:
- a reader, inside or outside the server, with a plan younger than `keep_replaced`: the objects in it were
  live then;
- an undelete: the snapshot of a deleted stream was replaced when the stream ended, and both are kept equally
  long;
- a manifest that is kept, with the state at its cut: the objects that it names were live at the cut, so they
  were replaced at a later position, if at all, and so later than the first manifest that is kept. The
  snapshot of a deleted stream counts as replaced once more when its tombstone is forgotten, for manifests
  that still have it.

After a restore there are manifests from after the restored point. The state does not know which objects they
name, so nothing is removed until the new generation itself is older than the horizon.

Manifests are removed first, then the objects that they named: a collector that is killed leaves orphans,
which the next round finds. All groups are checked before anything is removed, since any of them may name a
blob.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...cold.objects import keys
from ...cold.objects.keys import made_at
from ...cold.objects.store import ObjectDamaged, ObjectInfo, ObjectMissing, Store, StoreFailed
from ...cold.state import manifest as manifests
from ...model.commands import Collect
from ...model.outcomes import Done
from ...model.state import State
from ..clock import Clock
from ..flush.flusher import Flusher
from ..group.group import Group
from ..pacing import TimeSlice
from ..start.store_identity import check_generation

ROUNDS_KEPT = 24
"""How many rounds there are while a replaced object is kept."""
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 1.0, 3600.0
FIRST_SECONDS_MAX = 10.0
UNFINISHED_SECONDS_MIN = 3600.0
"""A body that arrives slowly may take this long, and its room is not needed before that."""
SLICE = 256
COLLECTED_AT_ONCE = 512
"""How many tombstones, and how many replaced objects, one command forgets."""

logger = logging.getLogger(__name__)


class CollectSettings(NamedTuple):
    """The generation of this node, and how long replaced objects are kept, in seconds."""

    generation: int
    keep_replaced: float


class CollectFailed(Exception):
    """The log did not accept the beginning of a collection; the text says why."""


class GarbageCollector:
    """Removes objects that no group needs. One serves all groups of a node, since they share the blobs."""

    def __init__(
        self,
        groups: Sequence[Group],
        flushers: Sequence[Flusher],
        store: Store,
        clock: Clock,
        settings: CollectSettings,
    ) -> None:
        self._groups = groups
        self._flushers = flushers
        self._store = store
        self._clock = clock
        self._settings = settings
        self.problem: str | None = None
        self.collected_count = 0
        self.collected_bytes = 0

    async def run(self) -> None:
        """Collect soon after the start and then at regular intervals, until cancelled."""
        pause = min(max(self._settings.keep_replaced / ROUNDS_KEPT, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
        await asyncio.sleep(min(pause, FIRST_SECONDS_MAX))
        while True:
            if all(flusher.knows_manifests for flusher in self._flushers):
                await self._try()
            await asyncio.sleep(pause)

    async def _try(self) -> None:
        try:
            await self.collect()
        except (StoreFailed, CollectFailed) as error:
            if self.problem != str(error):
                logger.info("objects that nothing needs are not removed from the store: %s", error)
            self.problem = str(error)
        else:
            self.problem = None

    async def collect(self) -> None:
        """Do one round."""
        store, settings = self._store, self._settings
        generation = await check_generation(store, settings.generation)
        horizon = self._clock() - int(settings.keep_replaced * 1_000_000)
        first_kept = []
        for group, flusher in zip(self._groups, self._flushers, strict=True):
            first_kept.append(await self._first_kept(group.number, flusher.previous_position, horizon))
            await self._announce(group, flusher, horizon, first_kept[-1])
        await store.forget_unfinished(max(settings.keep_replaced, UNFINISHED_SECONDS_MIN))
        if generation.at >= horizon:
            return
        before = self.collected_count, self.collected_bytes
        kept: set[str] = set()
        for group, flusher, first in zip(self._groups, self._flushers, first_kept, strict=True):
            kept |= await self._sweep_manifests(group.number, first, flusher.previous_position)
        for prefix in self._prefixes():
            await self._sweep(prefix, horizon, kept)
        count, size = self.collected_count - before[0], self.collected_bytes - before[1]
        if count:
            logger.info("removed %d objects with %d bytes that nothing needs from the store", count, size)

    async def _first_kept(self, number: int, last_but_one: int, horizon: int) -> int:
        """The position of the first manifest that is kept; that of the oldest if none is old enough."""
        store = self._store
        found = await manifests.find_manifests(store, number)
        for one in found[await manifests.last_at(store, found, horizon) :]:
            try:
                await manifests.read_manifest(store, one.key)
            except (ObjectDamaged, ObjectMissing):
                continue  # a restore to the horizon needs one that can be read
            return min(last_but_one, one.position)
        return min(last_but_one, found[-1].position) if found else 0

    async def _announce(self, group: Group, flusher: Flusher, horizon: int, first: int) -> None:
        """Move the horizon through the log, in steps that are short to apply."""
        reached: int | None = None
        while reached != horizon:
            reached = group.state.collection_step(horizon, reached or 0, COLLECTED_AT_ONCE)
            outcome = await group.propose_and_wait(Collect(reached, first))
            if not isinstance(outcome, Done):
                raise CollectFailed(f"the log did not accept the beginning of a collection: {outcome}")
        if await _lacks_manifests(group.state, flusher, horizon):
            flusher.request()

    def _prefixes(self) -> list[str]:
        numbers = [group.number for group in self._groups]
        return [
            *map(keys.segments_prefix, numbers),
            *map(keys.states_prefix, numbers),
            keys.BLOBS,
            keys.STAGING,
        ]

    async def _sweep_manifests(self, number: int, first: int, last_but_one: int) -> set[str]:
        """Remove manifests before the first one kept; returns the keys in the last two and the live list."""
        store = self._store
        old, kept = [], set()
        for found in reversed(await manifests.find_manifests(store, number)):
            if found.position < first:
                old.append(ObjectInfo(found.key, found.size, 0.0))
            elif found.position >= last_but_one:
                with suppress(ObjectDamaged, ObjectMissing):
                    kept |= _named_by(await manifests.read_manifest(store, found.key))
        await self._remove(old)
        try:
            live = await manifests.read_live(store, number)
        except ObjectMissing:
            return kept
        return kept | {segment.path for segment in live.segments}

    async def _sweep(self, prefix: str, horizon: int, kept: set[str]) -> None:
        """Remove objects that are older than the horizon and that nothing names."""
        listed = await self._store.list(prefix)
        for first in range(0, len(listed), SLICE):
            some = [
                found
                for found in listed[first : first + SLICE]
                if (at := made_at(found.key)) is not None
                and at < horizon
                and found.key not in kept
                and not any(_is_named(group.state, found.key) for group in self._groups)
            ]
            await self._remove(some)
            await asyncio.sleep(0)

    async def _remove(self, objects: list[ObjectInfo]) -> None:
        for first in range(0, len(objects), SLICE):
            some = objects[first : first + SLICE]
            await check_generation(self._store, self._settings.generation)
            await self._store.delete([found.key for found in some])
            self.collected_count += len(some)
            self.collected_bytes += sum(found.size for found in some)


async def _lacks_manifests(state: State, flusher: Flusher, horizon: int) -> bool:
    """Whether a replaced object is kept only because too few manifests were written after it was replaced.

    The first such manifest becomes the one at the horizon once it is old enough itself, so it is wanted soon.
    A second one is wanted once there is nothing else to wait for, since the last two are kept. More would be
    of no use.
    """
    all_replaced, time_slice = state.stored.replaced, TimeSlice()
    for key in all_replaced.by_time:
        replaced = all_replaced.get(key)
        if replaced is not None:
            is_old = replaced.at < horizon
            if replaced.position > (flusher.previous_position if is_old else flusher.manifest_position):
                return True
        await time_slice.end()
    return False


def _named_by(manifest: manifests.Manifest) -> set[str]:
    named = {state.path for state in manifest.state}
    return named if manifest.segment is None else named | {manifest.segment.path}


def _is_named(state: State, key: str) -> bool:
    """Whether a state names an object, or keeps it for readers that may still use it."""
    stored = state.stored
    if key in stored.replaced or state.segments.get(key) is not None:
        return True
    folder, _, blob = key.partition("/")
    if folder == "blobs":
        return blob in state.blobs or any(blob == body for _, body in stored.bodies)
    if folder == "staging":
        return any(key in ingest.objects for ingest in state.ingests.values() if not ingest.ended)
    if stored.ahead is not None and stored.ahead.key == key:
        return True
    return any(key == known.key for known in stored.chain)
