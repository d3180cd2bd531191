"""`backup`: a consistent copy of a store elsewhere, as of its last flush; and `restore`: a node from one.

Objects never change, so a copy goes on where an earlier one ended: only what is new is copied. What says that
they belong together, the manifests, comes last: a copy that is killed leaves the one before as it was.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..cold.objects import keys
from ..cold.objects.store import Store
from ..cold.state import manifest as manifests
from ..engine.data_folder import NewFolder, check_empty
from ..engine.load_state import LoadedState, load
from ..engine.offline.restore import Chosen, Restored, RestoreRefused, choose, find_generations, plan_restore
from ..engine.offline.restore import restore as restore_node
from ..engine.offline.verify import Progress, all_segments, blobs_of
from ..engine.segment_info import live_segment
from ..spark.copying import Copy, Failed, copy_objects
from ..spark.options import S3Options
from ..spark.store import StoreFiles
from .progress import untold
from .stores import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 64 << 20
TASK_OBJECTS = 256


@dataclass
class BackedUp:
    """What a job did; with `dry_run`, what it would do."""

    dry_run: bool
    source: str
    target: str
    positions: dict[int, int]
    """By group: the copy has everything up to here."""
    objects: int
    bytes: int
    copied_objects: int
    copied_bytes: int
    damages: list[Failed] = field(default_factory=list)
    """With any, the copy is not one: what there was before is as it was."""


def backup(
    spark: "SparkSession",
    source: str,
    target: str,
    *,
    s3: S3Options | None = None,
    target_s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = untold,
) -> BackedUp:
    """Copy a store; each of the two is a folder or s3://bucket/prefix. A server may go on meanwhile."""
    from_s3 = s3 or S3Options()
    to_s3 = target_s3 or from_s3

    async def work() -> BackedUp:
        store, copy = opened(source, from_s3), opened(target, to_s3)
        try:
            return await _backup(spark, store, copy, (from_s3, to_s3), dry_run, progress)
        finally:
            await store.close()
            await copy.close()

    return asyncio.run(work())


def restore(
    spark: "SparkSession",
    source: str,
    data_dir: Path,
    *,
    store: str | None = None,
    s3: S3Options | None = None,
    store_s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = untold,
) -> Restored:
    """Make a new node from a copy, which stays as it is: its store is `store`, or in the data folder.

    With `dry_run` it only tells what it would make, and what of the copy is missing.
    """
    target = store or str(data_dir / "cold")
    place = None if target.startswith("s3://") else Path(target)
    from_s3 = s3 or S3Options()
    to_s3 = store_s3 or from_s3
    if dry_run:
        check_empty(data_dir, place)
        return asyncio.run(_plan_restore((source, from_s3), (target, to_s3), progress))
    folder = NewFolder(data_dir, place)
    try:
        asyncio.run(_check_places((source, from_s3), (target, to_s3)))
        folder.begin()
        copied = backup(spark, source, target, s3=s3, target_s3=store_s3, progress=progress)
        if copied.damages:
            first = copied.damages[0]
            raise RestoreRefused(
                f"{len(copied.damages)} objects of {source} are damaged, as {first.name}: {first.problem}"
            )
        return asyncio.run(_restore(target, to_s3, folder, progress))
    finally:
        folder.close()


async def _restore(store: str, s3: S3Options, folder: NewFolder, progress: Progress) -> Restored:
    fresh = opened(store, s3)
    try:
        return await restore_node(fresh, folder, None, progress)
    finally:
        await fresh.close()


async def _check_places(source: tuple[str, S3Options], target: tuple[str, S3Options]) -> None:
    """Refuse what can never be restored while nothing has been written."""
    copy, fresh = opened(*source), opened(*target)
    try:
        newest = (await find_generations(copy))[-1]
        for group in range(newest.groups):
            await choose(copy, group, None)
        _check_cluster(fresh, await manifests.read_generations(fresh), newest.cluster)
    finally:
        await copy.close()
        await fresh.close()


async def _plan_restore(
    source: tuple[str, S3Options], target: tuple[str, S3Options], progress: Progress
) -> Restored:
    copy, fresh = opened(*source), opened(*target)
    try:
        planned = await plan_restore(copy, None, progress)
        there = await manifests.read_generations(fresh)
        _check_cluster(fresh, there, planned.cluster)
        return planned._replace(generation=max(planned.generation, manifests.newest_generation(there) + 1))
    finally:
        await copy.close()
        await fresh.close()


def _check_cluster(target: Store, before: Sequence[manifests.Generation], cluster: str) -> None:
    if before and before[-1].cluster != cluster:
        raise RestoreRefused(f"{target.root} has a copy of another cluster: choose another place")


async def _backup(
    spark: "SparkSession",
    source: Store,
    target: Store,
    reached: tuple[S3Options, S3Options],
    dry_run: bool,
    progress: Progress,
) -> BackedUp:
    generations = await find_generations(source)
    before = await manifests.read_generations(target)
    _check_cluster(target, before, generations[-1].cluster)
    chosen = [await choose(source, group, None) for group in range(generations[-1].groups)]
    loaded = [await load(source, one.manifest, one.key) for one in chosen]
    wanted = [copy for one, state in zip(chosen, loaded, strict=True) for copy in _named(one, state)]
    there = {stored.key: stored.size for stored in await target.list("")}
    missing = [copy for copy in wanted if there.get(copy.key) != copy.size]
    report = BackedUp(
        dry_run,
        source.root,
        target.root,
        {one.manifest.group: one.manifest.position for one in chosen},
        len(wanted),
        sum(copy.size for copy in wanted),
        len(missing),
        sum(copy.size for copy in missing),
    )
    if dry_run:
        return report
    for failed in _copied(spark, source.root, target.root, reached, missing, progress):
        report.damages.append(failed)
    if not report.damages:
        await _publish(target, generations, chosen, loaded)
    return report


def _named(chosen: Chosen, loaded: LoadedState) -> Iterator[Copy]:
    """The objects that make up a group."""
    for facts in chosen.manifest.state:
        yield Copy(facts.path, facts.bytes, facts.digest)
    for segment in all_segments(loaded.state):
        yield Copy(segment.key, segment.size, segment.digest)
    for blob in blobs_of(loaded.state):
        yield Copy(blob.key, blob.size, blob.digest)


def _copied(
    spark: "SparkSession",
    source: str,
    target: str,
    reached: tuple[S3Options, S3Options],
    objects: Sequence[Copy],
    progress: Progress,
) -> Iterator[Failed]:
    tasks = list(_shared_out(objects))
    if not tasks:
        return

    def one(some: list[Copy]) -> list[Failed]:
        return copy_objects(StoreFiles(source, reached[0]), StoreFiles(target, reached[1]), some)

    done, total = 0, sum(copy.size for copy in objects)
    made = spark.sparkContext.parallelize(tasks, len(tasks)).map(one).toLocalIterator(True)
    for some, failed in zip(tasks, made, strict=True):
        done += sum(copy.size for copy in some)
        progress("copying objects", done, total)
        yield from failed


def _shared_out(objects: Iterable[Copy]) -> Iterator[list[Copy]]:
    some: list[Copy] = []
    size = 0
    for copy in objects:
        if some and (size + copy.size > TASK_BYTES or len(some) == TASK_OBJECTS):
            yield some
            some, size = [], 0
        some.append(copy)
        size += copy.size
    if some:
        yield some


async def _publish(
    target: Store,
    generations: Sequence[manifests.Generation],
    chosen: Sequence[Chosen],
    loaded: Sequence[LoadedState],
) -> None:
    """Say what the objects are, when all of them are there."""
    for generation in generations:
        key = keys.generation_key(generation.generation)
        await target.put(key, manifests.encode(generation))
    for one, state in zip(chosen, loaded, strict=True):
        manifest = one.manifest
        await target.put(one.key, manifests.encode(manifest))
        live = [live_segment(segment) for segment in all_segments(state.state)]
        document = manifests.LiveList(
            manifest.cluster, manifest.generation, manifest.group, manifest.position, live
        )
        await target.put(keys.live_key(manifest.group), manifests.encode(document))
