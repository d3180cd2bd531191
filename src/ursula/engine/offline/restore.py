"""Restore: makes a new node from the store alone, as of the last flush or an earlier one.

A restore begins a new generation, so that positions never go back and a node that still runs in the old
generation stops. The steps are: everything is checked; the data folder is marked, so that no server starts
from it; `generations/{n}.json` is created, which is the point of no return; each group gets a base and a
manifest at the first position of the generation, and a live list; the data folder gets its identity. A
restore that is killed before the generation is created has changed nothing in the store. One that is killed
later must be run again, and begins another generation.

The store of a cluster has its log in etcd. That log is ended before the generation is created, so that what a
node acknowledges is either in the restored state or in the report of what is lost, never lost silently.
The nodes keep their folders and join the new generation when they start. A restore that is killed in between
leaves a cluster that writes nothing until the restore is run again.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from ...cold.objects import keys
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store
from ...cold.state import manifest as manifests
from ...cold.state.manifest import FoundManifest, Generation, LiveList, Manifest, StateFacts
from ...cold.state.state_rows import BATCH_ROWS, batch_of, encode_state
from ...log.interface import GENERATION_SHIFT
from ...model.checkpoint import checkpoint
from ...model.checkpoint.generation import begin_generation
from ...model.state import State
from ...model.store_view.dirty_rows import GROUP_KEY
from ...times import format_time, parse_time
from ..clock import Clock, system_clock
from ..segment_info import live_segment
from ..start.data_folder import FORMAT as FOLDER_FORMAT
from ..start.data_folder import Identity, NewFolder
from ..start.heartbeat import find_heartbeats, is_alive
from ..start.load_state import LoadedState, StoreRefused, load
from .verify import Damage, Extent, Progress, check_contents, check_presence, extent_of

_AGO = re.compile(r"(\d{1,9}) ?(s|m|h|d) ago")
_POSITION = re.compile(r"\d{1,20}")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


Fence = Callable[[int, int], Awaitable[None]]
"""Ends the log of a cluster by beginning that of a generation, with this many groups; RestoreRefused if it
cannot."""


class RestoreRefused(Exception):
    """The restore is not possible; the text says why and what to do."""


class Damaged(RestoreRefused):
    """Objects in the store are missing or damaged."""

    def __init__(self, damages: list[Damage]) -> None:
        verb = "is" if len(damages) == 1 else "are"
        super().__init__(f"{len(damages)} of the objects needed {verb} missing or damaged")
        self.damages = damages


class Moment(NamedTuple):
    """How far back to go: to a position of the log, or to a time in microseconds since 1970."""

    position: int | None = None
    time: int | None = None


class Chosen(NamedTuple):
    """The manifest from which a group is restored, and how many newer ones there are."""

    key: str
    manifest: Manifest
    newer_count: int


class Restored(NamedTuple):
    """What was restored, and up to where."""

    cluster: str
    generation: int
    etcd: str
    """The name of the cluster that it belongs to; empty for a single node."""
    extent: Extent
    chosen: list[Chosen]
    damages: list[Damage]

    @property
    def at(self) -> int:
        """The time up to which everything is restored, in microseconds since 1970."""
        return min(chosen.manifest.at for chosen in self.chosen)


def parse_moment(text: str, now: int) -> Moment:
    """A position, an RFC 3339 time, or how long ago: 90s ago, 30m ago, 2h ago, 7d ago."""
    if _POSITION.fullmatch(text):
        return Moment(position=int(text))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return Moment(time=now - int(ago[1]) * _SECONDS[ago[2]] * 1_000_000)
    try:
        return Moment(time=parse_time(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a position nor a time such as 2030-01-01T12:00:00Z or '2h ago'"
        ) from None


async def restore(
    store: Store,
    folder: NewFolder | None,
    moment: Moment | None,
    progress: Progress,
    *,
    read_all: bool = False,
    accept_damage: bool = False,
    take_over: bool = False,
    fence: Fence | None = None,
    log_is_gone: bool = False,
    clock: Clock = system_clock,
) -> Restored:
    """Make a node from a store; raises `Damaged` if objects are missing or damaged, unless that is accepted.

    A store that a server seems to be using is rejected, unless it is to be taken over. Without a folder, the
    store must be that of a cluster, which continues with it. `log_is_gone` says that nothing can write to the
    log of the cluster any more; otherwise, `fence` must end it.
    """
    newest = (await find_generations(store))[-1]
    _check_kind(store, newest, folder)
    signs = None if take_over else await _signs_of_life(store, newest, clock())
    planned, loaded = await _plan(store, newest, moment, progress, read_all)
    if planned.damages and not accept_damage:
        raise Damaged(planned.damages)
    if signs is not None and await _signs_of_life(store, newest, clock()) != signs:
        raise _in_use(store, newest, "a server has written to it just now")
    is_resumed = await _is_unfinished(store, newest)
    if folder is not None:
        await asyncio.to_thread(folder.begin)
    try:
        if newest.etcd and not log_is_gone and not is_resumed:
            await _fence(store, newest, fence)
            if moment is None:  # the keeper may have flushed until now
                planned, loaded = await _plan(store, newest, moment, progress, read_all=False)
        is_gone = log_is_gone or (is_resumed and newest.log_is_gone)
        generation = await _begin(
            store, newest, planned, clock(), is_cluster=folder is None, log_is_gone=is_gone
        )
    except RestoreRefused:
        if folder is not None:
            folder.take_back()
        raise
    for one in loaded:
        await _store_base(store, generation, one, progress)
    identity = Identity(FOLDER_FORMAT, generation.cluster, generation.generation, generation.groups)
    if folder is not None:
        await asyncio.to_thread(folder.finish, identity)
    return planned._replace(etcd=generation.etcd)


def _check_kind(store: Store, newest: Generation, folder: NewFolder | None) -> None:
    if folder is None and not newest.etcd:
        raise RestoreRefused(
            f"{store.root} is the store of a single node: name the folder of the new node with --data-dir"
        )


async def _fence(store: Store, newest: Generation, fence: Fence | None) -> None:
    """End the log of the cluster that the store belongs to."""
    if fence is None:
        raise RestoreRefused(
            f"{store.root} belongs to the cluster {newest.etcd}, and nodes may still write to its log, which "
            "is in etcd: name the configuration of one of its nodes with --config. If the folders of etcd "
            "are lost for good, or this is a copy of the store, say so with --log-is-gone"
        )
    await fence(newest.generation + 1, newest.groups)


async def _is_unfinished(store: Store, newest: Generation) -> bool:
    """Whether the restore that began this generation was killed, so that no node ever was in it."""
    if newest.generation == 1:
        return False
    base = newest.generation << GENERATION_SHIFT
    found = [await manifests.find_manifests(store, group) for group in range(newest.groups)]
    return any(not some or some[0].position < base for some in found)


async def _signs_of_life(store: Store, newest: Generation, now: int) -> object:
    """Objects that change while a server uses the store; raises if a server seems to be running."""
    heartbeats = await find_heartbeats(store)
    for key, heartbeat in heartbeats.items():
        if heartbeat is None:
            raise _in_use(store, newest, f"it has the heartbeat {key}, which cannot be read")
        if is_alive(heartbeat, now):
            raise _in_use(
                store,
                newest,
                f"node {heartbeat.node} at {heartbeat.address} on {heartbeat.host} said so "
                f"{max(0, round(heartbeat.age_seconds(now)))} s ago, and counts as dead after "
                f"{heartbeat.patience_seconds:.0f} s",
            )
    found = [await manifests.find_manifests(store, group) for group in range(newest.groups)]
    return heartbeats, [some[:1] for some in found]


def _in_use(store: Store, newest: Generation, reason: str) -> RestoreRefused:
    if newest.etcd:
        return RestoreRefused(
            f"{store.root} is in use: {reason}. Restore from a copy, or run `ursula flush` and then `ursula "
            f"restore --take-over`, which ends the log of the cluster {newest.etcd}: its nodes stop, and "
            "what they accepted after the last flush is lost"
        )
    return RestoreRefused(
        f"{store.root} is in use: {reason}. Stop that server first, or restore from a copy. With `ursula "
        "restore --take-over` the store is taken over from it: it stops, and the writes that it accepted "
        "after its last flush are lost"
    )


async def plan_restore(store: Store, moment: Moment | None, progress: Progress) -> Restored:
    """What a restore would do; changes nothing."""
    newest = (await find_generations(store))[-1]
    return (await _plan(store, newest, moment, progress, read_all=False))[0]


async def _plan(
    store: Store, newest: Generation, moment: Moment | None, progress: Progress, read_all: bool
) -> tuple[Restored, list[LoadedState]]:
    chosen = [await choose(store, group, moment) for group in range(newest.groups)]
    loaded = [await _load(store, one, progress) for one in chosen]
    check = check_contents if read_all else check_presence
    damages = [damage for one in loaded for damage in await check(store, one, progress)]
    extent = Extent()
    for one in loaded:
        extent = extent.plus(extent_of(one.state))
    planned = Restored(newest.cluster, newest.generation + 1, newest.etcd, extent, chosen, damages)
    return planned, loaded


async def find_generations(store: Store) -> list[Generation]:
    """All generations of a store, which must have one."""
    try:
        found = await manifests.read_generations(store)
    except ObjectDamaged as error:
        raise RestoreRefused(f"{error}: {manifests.GENERATION_HINT}") from None
    if not found:
        raise RestoreRefused(
            f"{store.root} is not a store of ursula: it has no generations/1.json. Is it the folder, or the "
            "bucket and prefix, that cold.root and cold.s3_bucket of the node say?"
        )
    return found


async def choose(store: Store, group: int, moment: Moment | None) -> Chosen:
    """The newest manifest of a group at or before a moment."""
    found = await manifests.find_manifests(store, group)
    if not found:
        raise RestoreRefused(
            f"{store.root} has no manifest of group {group}: nothing was ever flushed, and everything is in "
            "the log of the node"
        )
    number = 0
    if moment is not None:
        number = await _find(store, found, moment)
    key = found[number].key
    try:
        return Chosen(key, await manifests.read_manifest(store, key), number)
    except (ObjectDamaged, ObjectMissing) as error:
        hint = "put it back from a backup"
        before = await _first_readable(store, found[number + 1 :])
        if before is not None:
            hint += f", or go back to the one before with --at {before.position}"
        raise RestoreRefused(f"{error}: {hint}") from None


async def _find(store: Store, found: Sequence[FoundManifest], moment: Moment) -> int:
    """The index of the last manifest at or before a moment; `found` has the newest first."""
    if moment.position is not None:
        for number, one in enumerate(found):
            if one.position <= moment.position:
                return number
        raise RestoreRefused(
            f"the oldest manifest is of position {found[-1].position}, and the newest of position "
            f"{found[0].position}: choose one between them"
        )
    time = moment.time or 0
    number = await manifests.last_at(store, found, time)
    if number == len(found):
        oldest, newest = [await _first_readable(store, some) for some in (found[::-1], found)]
        if oldest is None or newest is None:
            raise RestoreRefused(f"no manifest in {store.root} can be read: put one back from a backup")
        raise RestoreRefused(
            f"the oldest manifest is of {format_time(oldest.at)}, and the newest of "
            f"{format_time(newest.at)}: choose a time between them"
        )
    return number


async def _first_readable(store: Store, found: Sequence[FoundManifest]) -> Manifest | None:
    for one in found:
        try:
            return await manifests.read_manifest(store, one.key)
        except (ObjectDamaged, ObjectMissing):
            continue
    return None


async def _load(store: Store, chosen: Chosen, progress: Progress) -> LoadedState:
    total = sum(facts.bytes for facts in chosen.manifest.state)
    progress("reading the state", 0, total)
    try:
        loaded = await load(store, chosen.manifest, chosen.key)
    except (ObjectDamaged, ObjectMissing, StoreRefused) as error:
        raise RestoreRefused(
            f"{error}: put it back from a backup, or go back further with --at (a position below "
            f"{chosen.manifest.position}); `ursula inspect` lists them all"
        ) from None
    progress("reading the state", total, total)
    return loaded


async def _begin(
    store: Store, newest: Generation, planned: Restored, now: int, *, is_cluster: bool, log_is_gone: bool
) -> Generation:
    """Create the next generation. From now on, the old node stops at its next flush."""
    chosen = planned.chosen
    generation = Generation(
        format=manifests.FORMAT,
        cluster=newest.cluster,
        generation=newest.generation + 1,
        groups=newest.groups,
        at=now,
        source=chosen[0].key,
        ended={str(one.manifest.group): one.manifest.position for one in chosen},
        etcd=newest.etcd if is_cluster else "",
        log_is_gone=is_cluster and log_is_gone,
    )
    key = keys.generation_key(generation.generation)
    if not await store.create(key, manifests.encode(generation)):
        raise RestoreRefused(
            f"another restore has just created {key}: find out which, and run this one again if it is needed"
        )
    return generation


async def _store_base(store: Store, generation: Generation, loaded: LoadedState, progress: Progress) -> None:
    """Store the state as of the first position of the generation, its manifest and its live list."""
    state, group = loaded.state, loaded.state.group
    position = generation.generation << GENERATION_SHIFT
    begin_generation(state, position, generation.at, [facts.path for facts in loaded.manifest.state])
    encoded = await asyncio.to_thread(lambda: encode_state(_batches(state, progress)))
    key = keys.state_key(group, position)
    await store.put(key, memoryview(encoded.data))
    manifest = Manifest(
        format=manifests.FORMAT,
        cluster=generation.cluster,
        generation=generation.generation,
        group=group,
        start=position,
        position=position,
        at=state.at,
        segment=None,
        state=[StateFacts(key, True, encoded.rows, encoded.data.size, encoded.digest)],
        previous=loaded.key,
    )
    await store.put(keys.manifest_key(group, position), manifests.encode(manifest))
    segments = [live_segment(one) for one in state.segments]
    live = LiveList(generation.cluster, generation.generation, group, position, segments)
    await store.put(keys.live_key(group), manifests.encode(live))


def _batches(state: State, progress: Progress) -> list[pa.RecordBatch]:
    batches = [batch_of([(GROUP_KEY, checkpoint.group_row(state))])]
    keys = list(checkpoint.all_keys(state))
    for first in range(0, len(keys), BATCH_ROWS):
        some = keys[first : first + BATCH_ROWS]
        batches.append(batch_of([(key, checkpoint.row_of(state, key)) for key in some]))
        progress("writing the new state", first + len(some), len(keys))
    return batches
