"""`restore`: makes a new node from a copy of a store. Spark tasks copy its objects."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..cold.objects.store import Store
from ..cold.state import manifest as manifests
from ..engine.offline.restore import Restored, RestoreRefused, choose, find_generations, plan_restore
from ..engine.offline.restore import restore as restore_node
from ..engine.offline.verify import Progress
from ..engine.start.data_folder import NewFolder, check_empty
from ..spark.options import S3Options
from ..spark.tasks.object_copy import CopyFailure
from .backup import backup, check_cluster
from .progress import no_step_progress
from .stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Location(NamedTuple):
    """Where a store is, and how it is reached."""

    root: str
    s3: S3Options

    def open(self) -> Store:
        return open_store(self.root, self.s3)


def restore(
    spark: "SparkSession",
    source: str,
    data_dir: Path,
    *,
    store: str | None = None,
    s3: S3Options | None = None,
    store_s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = no_step_progress,
) -> Restored:
    """Make a new node from a copy, which stays as it is. The new store is `store`, or in the data folder.

    With `dry_run` it only reports what it would make, and which objects of the copy are missing.
    """
    from_s3 = s3 or S3Options()
    copy, target = _Location(source, from_s3), _Location(store or str(data_dir / "cold"), store_s3 or from_s3)
    folder_of_store = None if target.root.startswith("s3://") else Path(target.root)
    if dry_run:
        check_empty(data_dir, folder_of_store)
        return asyncio.run(_plan(copy, target, progress))
    folder = NewFolder(data_dir, folder_of_store)
    try:
        asyncio.run(_check(copy, target))
        folder.begin()
        copied = backup(spark, source, target.root, s3=s3, target_s3=store_s3, progress=progress)
        if copied.damages:
            raise RestoreRefused(_damage_of(source, copied.damages))
        return asyncio.run(_restore(target, folder, progress))
    finally:
        folder.close()


def _damage_of(source: str, damages: Sequence[CopyFailure]) -> str:
    """Why a copy is no good to restore from."""
    first = damages[0]
    if len(damages) == 1:
        return f"1 object of {source} is damaged: {first.name}: {first.problem}"
    return f"{len(damages)} objects of {source} are damaged, such as {first.name}: {first.problem}"


async def _restore(target: _Location, folder: NewFolder, progress: Progress) -> Restored:
    fresh = target.open()
    try:
        return await restore_node(fresh, folder, None, progress, log_is_gone=True)  # it is a copy
    finally:
        await fresh.close()


async def _check(source: _Location, target: _Location) -> None:
    """Reject a restore that can never succeed, before anything is written."""
    copy, fresh = source.open(), target.open()
    try:
        newest = (await find_generations(copy))[-1]
        for group in range(newest.groups):
            await choose(copy, group, None)
        check_cluster(fresh, await manifests.read_generations(fresh), newest.cluster)
    finally:
        await copy.close()
        await fresh.close()


async def _plan(source: _Location, target: _Location, progress: Progress) -> Restored:
    copy, fresh = source.open(), target.open()
    try:
        planned = await plan_restore(copy, None, progress)
        existing = await manifests.read_generations(fresh)
        check_cluster(fresh, existing, planned.cluster)
        return planned._replace(generation=max(planned.generation, manifests.newest_generation(existing) + 1))
    finally:
        await copy.close()
        await fresh.close()
