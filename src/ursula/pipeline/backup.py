"""`backup`: copies a store, consistently as of its last flush, to another place.

Objects never change, so a backup continues where an earlier one ended: it copies only new objects. The
manifests, which say that objects belong together, come last: a backup that is killed leaves the previous one
intact.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cold.objects import keys
from ..cold.objects.store import Store
from ..cold.state import manifest as manifests
from ..engine.offline.restore import Chosen, RestoreRefused, choose, find_generations
from ..engine.offline.verify import Progress, all_segments, blobs_of
from ..engine.segment_info import live_segment
from ..engine.start.load_state import LoadedState, load
from ..spark.executor_store import ExecutorStore
from ..spark.options import S3Options
from ..spark.tasks.object_copy import CopyFailure, ObjectToCopy, copy_objects
from .progress import no_step_progress
from .stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 64 << 20
TASK_OBJECTS = 256


@dataclass
class BackedUp:
    """The result of a job; with `dry_run`, what it would do."""

    dry_run: bool
    source: str
    target: str
    positions: dict[int, int]
    """By group: the position up to which the copy has everything."""
    objects: int
    bytes: int
    copied_objects: int
    copied_bytes: int
    damages: list[CopyFailure] = field(default_factory=list)
    """If there are any, there is no new backup: the previous one is unchanged."""


def backup(
    spark: "SparkSession",
    source: str,
    target: str,
    *,
    s3: S3Options | None = None,
    target_s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = no_step_progress,
) -> BackedUp:
    """Copy a store. Source and target are folders or s3://bucket/prefix. A server may be running."""
    from_s3 = s3 or S3Options()
    to_s3 = target_s3 or from_s3

    async def work() -> BackedUp:
        store, copy = open_store(source, from_s3), open_store(target, to_s3)
        try:
            return await _Backup(spark, store, copy, (from_s3, to_s3), progress).run(dry_run)
        finally:
            await store.close()
            await copy.close()

    return asyncio.run(work())


def check_cluster(target: Store, generations: Sequence[manifests.Generation], cluster: str) -> None:
    """Reject a target that has a copy of another cluster."""
    if generations and generations[-1].cluster != cluster:
        raise RestoreRefused(f"{target.root} has a copy of another cluster: choose another place")


class _Backup:
    """A backup from one store to another."""

    def __init__(
        self,
        spark: "SparkSession",
        source: Store,
        target: Store,
        s3: tuple[S3Options, S3Options],
        progress: Progress,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._s3 = s3
        self._progress = progress

    async def run(self, dry_run: bool) -> BackedUp:
        source, target = self._source, self._target
        generations = await find_generations(source)
        check_cluster(target, await manifests.read_generations(target), generations[-1].cluster)
        chosen = [await choose(source, group, None) for group in range(generations[-1].groups)]
        loaded = [await load(source, one.manifest, one.key) for one in chosen]
        wanted = [copy for one, state in zip(chosen, loaded, strict=True) for copy in _named(one, state)]
        existing = {stored.key: stored.size for stored in await target.list("")}
        missing = [copy for copy in wanted if existing.get(copy.key) != copy.size]
        report = BackedUp(
            dry_run=dry_run,
            source=source.root,
            target=target.root,
            positions={one.manifest.group: one.manifest.position for one in chosen},
            objects=len(wanted),
            bytes=sum(copy.size for copy in wanted),
            copied_objects=len(missing),
            copied_bytes=sum(copy.size for copy in missing),
        )
        if dry_run:
            return report
        report.damages.extend(self._copy(missing))
        if not report.damages:
            await self._publish(generations, chosen, loaded)
        return report

    def _copy(self, objects: Sequence[ObjectToCopy]) -> Iterator[CopyFailure]:
        """Copy objects with the tasks of the session; yields those that are missing or damaged."""
        tasks = list(_divided(objects))
        if not tasks:
            return
        source, target = self._source.root, self._target.root
        source_s3, target_s3 = self._s3

        def copy(some: list[ObjectToCopy]) -> list[CopyFailure]:
            return copy_objects(ExecutorStore(source, source_s3), ExecutorStore(target, target_s3), some)

        done, total = 0, sum(one.size for one in objects)
        results = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(copy).toLocalIterator(True)
        for some, failures in zip(tasks, results, strict=True):
            done += sum(one.size for one in some)
            self._progress("copying objects", done, total)
            yield from failures

    async def _publish(
        self,
        generations: Sequence[manifests.Generation],
        chosen: Sequence[Chosen],
        loaded: Sequence[LoadedState],
    ) -> None:
        """Write the documents that name the objects, now that all objects are there."""
        for generation in generations:
            key = keys.generation_key(generation.generation)
            await self._target.put(key, manifests.encode(generation))
        for one, state in zip(chosen, loaded, strict=True):
            manifest = one.manifest
            await self._target.put(one.key, manifests.encode(manifest))
            live = manifests.LiveList(
                manifest.cluster,
                manifest.generation,
                manifest.group,
                manifest.position,
                [live_segment(segment) for segment in all_segments(state.state)],
            )
            await self._target.put(keys.live_key(manifest.group), manifests.encode(live))


def _named(chosen: Chosen, loaded: LoadedState) -> Iterator[ObjectToCopy]:
    """The objects that make up a group."""
    for facts in chosen.manifest.state:
        yield ObjectToCopy(facts.path, facts.bytes, facts.digest)
    for segment in all_segments(loaded.state):
        yield ObjectToCopy(segment.key, segment.size, segment.digest)
    for blob in blobs_of(loaded.state):
        yield ObjectToCopy(blob.key, blob.size, blob.digest)


def _divided(objects: Iterable[ObjectToCopy]) -> Iterator[list[ObjectToCopy]]:
    """The objects in lists, one for each task."""
    some: list[ObjectToCopy] = []
    size = 0
    for copy in objects:
        if some and (size + copy.size > TASK_BYTES or len(some) == TASK_OBJECTS):
            yield some
            some, size = [], 0
        some.append(copy)
        size += copy.size
    if some:
        yield some
