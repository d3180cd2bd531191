"""The contents of a store, and whether it is complete, without a server."""

from typing import NamedTuple

from ...cold.objects.keys import segments_prefix
from ...cold.objects.store import ObjectDamaged, ObjectMissing, Store
from ...cold.segment.report import SegmentReport
from ...cold.state import manifest as manifests
from ...cold.state.manifest import FoundManifest, Generation, Manifest
from ...model.commands import StoredSegment
from ..start.heartbeat import Heartbeat, find_heartbeats
from ..start.load_state import LoadedState, StoreRefused, load
from .restore import Moment, RestoreRefused, choose, find_generations
from .verify import (
    Damage,
    Examined,
    Extent,
    Progress,
    all_segments,
    check_contents,
    check_state,
    examine_object,
    extent_of,
)


class GroupSurvey(NamedTuple):
    """The contents of one group in a store, as of one of its manifests."""

    group: int
    manifests: list[FoundManifest]
    manifest: Manifest
    extent: Extent
    segments: list[StoredSegment]
    unnamed: list[tuple[str, int]]
    """Segments that this state does not name, with their sizes: replaced ones, later ones and orphans."""


class StoreSurvey(NamedTuple):
    """The contents of a store."""

    root: str
    generations: list[Generation]
    groups: list[GroupSurvey]
    servers: list[Heartbeat]
    """Heartbeats of the servers that use it."""


class Verified(NamedTuple):
    """The result of reading everything."""

    extent: Extent
    positions: dict[int, int]
    damages: list[Damage]


async def survey_store(store: Store, group: int | None, moment: Moment | None) -> StoreSurvey:
    """The contents of a store: of all groups or of one, now or as of a moment."""
    generations = await find_generations(store)
    found = [await _survey(store, number, moment) for number in _numbers(store, generations, group)]
    servers = [one for one in (await find_heartbeats(store)).values() if one is not None]
    return StoreSurvey(store.root, generations, found, servers)


async def show_segment(store: Store, key: str) -> SegmentReport:
    """The contents of a segment, which is checked against its own checksums."""
    return await examine_object(store, key)


async def verify_store(
    store: Store,
    group: int | None,
    moment: Moment | None,
    progress: Progress,
    examined: Examined | None = None,
) -> Verified:
    """Read everything that the newest manifests name, or those as of a moment; `examined` reads segments."""
    generations = await find_generations(store)
    extent, positions, damages = Extent(), {}, []
    for number in _numbers(store, generations, group):
        damages += await _check_documents(store, number)
        manifest, key = await _readable(store, number, moment)
        positions[number] = manifest.position
        of_state = await check_state(store, manifest)
        damages += of_state
        if of_state:
            damages += await _check_alone(store, number, progress)
            continue
        try:
            loaded = await load(store, manifest, key)
        except ObjectDamaged as error:
            damages.append(Damage(error.key, error.problem))
            continue
        except StoreRefused as error:
            damages.append(Damage(key, str(error)))
            continue
        damages += await check_contents(store, loaded, progress, examined)
        extent = extent.plus(extent_of(loaded.state))
    return Verified(extent, positions, damages)


def _numbers(store: Store, generations: list[Generation], group: int | None) -> list[int]:
    """All groups of a store, or the given one."""
    count = generations[-1].groups
    if group is None:
        return list(range(count))
    if not 0 <= group < count:
        there = "only group 0" if count == 1 else f"the groups 0 to {count - 1}"
        raise RestoreRefused(f"{store.root} has no group {group}: it has {there}")
    return [group]


async def _survey(store: Store, group: int, moment: Moment | None) -> GroupSurvey:
    chosen = await choose(store, group, moment)
    loaded: LoadedState = await load(store, chosen.manifest, chosen.key)
    segments = all_segments(loaded.state)
    named = {segment.key for segment in segments}
    stored = await store.list(segments_prefix(group))
    return GroupSurvey(
        group=group,
        manifests=await manifests.find_manifests(store, group),
        manifest=chosen.manifest,
        extent=extent_of(loaded.state),
        segments=segments,
        unnamed=[(found.key, found.size) for found in stored if found.key not in named],
    )


async def _readable(store: Store, group: int, moment: Moment | None) -> tuple[Manifest, str]:
    """The manifest as of a moment; without one, the newest readable manifest, which a server would use."""
    if moment is None:
        for found in await manifests.find_manifests(store, group):
            try:
                return await manifests.read_manifest(store, found.key), found.key
            except (ObjectDamaged, ObjectMissing):
                continue
    chosen = await choose(store, group, moment)
    return chosen.manifest, chosen.key


async def _check_documents(store: Store, group: int) -> list[Damage]:
    """Check that all manifests and the live list can be read; a server may remove some at the same time."""
    damages = []
    for found in await manifests.find_manifests(store, group):
        try:
            await manifests.read_manifest(store, found.key)
        except ObjectDamaged as error:
            damages.append(Damage(error.key, error.problem))
        except ObjectMissing:
            continue
    try:
        await manifests.read_live(store, group)
    except ObjectDamaged as error:
        damages.append(Damage(error.key, error.problem))
    except ObjectMissing:
        pass  # it is written some seconds after the first flush
    return damages


async def _check_alone(store: Store, group: int, progress: Progress) -> list[Damage]:
    """Check segments against their own checksums if there is no state to check them against."""
    damages = []
    stored = await store.list(segments_prefix(group))
    for number, found in enumerate(stored):
        report = await examine_object(store, found.key)
        damages += [Damage(found.key, problem) for problem in report.problems]
        progress("reading segments", number + 1, len(stored))
    return damages
