"""`verify`: whether a store has what its manifests promise, every byte of it, read by many at once.

The same checks as those of `ursula inspect --verify`: only the segments are read by tasks of Spark.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ..cold.segment.report import SegmentReport
from ..engine.offline.inspect import Verified, survey_store, verify_store
from ..engine.offline.verify import Examined, Extent, Progress
from ..model.commands import StoredSegment
from ..spark.examining import Expected, examine_stored
from ..spark.options import S3Options
from ..spark.store import StoreFiles
from .progress import untold
from .stores import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(
    spark: "SparkSession",
    path: str,
    *,
    s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = untold,
) -> Verified:
    """Check the store at a folder or at s3://bucket/prefix; with `dry_run`, only tell how much that is."""
    reached = s3 or S3Options()

    async def work() -> Verified:
        store = opened(path, reached)
        try:
            if not dry_run:
                return await verify_store(store, None, None, progress, _by(spark, store.root, reached))
            survey = await survey_store(store, None, None)
            extent = Extent()
            for group in survey.groups:
                extent = extent.plus(group.extent)
            return Verified(extent, {group.group: group.manifest.position for group in survey.groups}, [])
        finally:
            await store.close()

    return asyncio.run(work())


def _by(spark: "SparkSession", root: str, s3: S3Options) -> Examined:
    """Segments are examined by the tasks of a session."""

    async def examined(
        store: object, segments: Sequence[StoredSegment]
    ) -> AsyncIterator[tuple[StoredSegment, SegmentReport]]:
        if not segments:
            return
        wanted = [Expected(segment.key, segment.digest, segment.footer_crc) for segment in segments]
        files = spark.sparkContext.parallelize(wanted, len(wanted))
        reports = files.map(lambda one: examine_stored(StoreFiles(root, s3), one)).toLocalIterator(True)
        for segment in segments:
            yield segment, await asyncio.to_thread(next, reports)

    return examined
