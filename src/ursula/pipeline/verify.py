"""`verify`: checks that a store has everything that its manifests name, byte by byte, with many readers.

It makes the same checks as `ursula inspect --verify`, except that Spark tasks read the segments.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ..cold.segment.report import SegmentReport
from ..engine.offline.inspect import Verified, survey_store, verify_store
from ..engine.offline.verify import Examined, Extent, Progress
from ..model.commands import StoredSegment
from ..spark.executor_store import ExecutorStore
from ..spark.options import S3Options
from ..spark.tasks.segment_check import ExpectedSegment, check_segment
from .progress import no_step_progress
from .stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(
    spark: "SparkSession",
    path: str,
    *,
    s3: S3Options | None = None,
    dry_run: bool = False,
    progress: Progress = no_step_progress,
) -> Verified:
    """Check the store in a folder or at s3://bucket/prefix; with `dry_run`, only report how much there is."""
    options = s3 or S3Options()

    async def work() -> Verified:
        store = open_store(path, options)
        try:
            if not dry_run:
                return await verify_store(store, None, None, progress, _examiner(spark, store.root, options))
            survey = await survey_store(store, None, None)
            extent = Extent()
            for group in survey.groups:
                extent = extent.plus(group.extent)
            return Verified(extent, {group.group: group.manifest.position for group in survey.groups}, [])
        finally:
            await store.close()

    return asyncio.run(work())


def _examiner(spark: "SparkSession", root: str, s3: S3Options) -> Examined:
    """Examines segments with the tasks of a session."""

    async def examined(
        store: object, segments: Sequence[StoredSegment]
    ) -> AsyncIterator[tuple[StoredSegment, SegmentReport]]:
        if not segments:
            return
        wanted = [ExpectedSegment(segment.key, segment.digest, segment.footer_crc) for segment in segments]
        files = spark.sparkContext.parallelize(wanted, len(wanted))
        reports = files.map(lambda one: check_segment(ExecutorStore(root, s3), one)).toLocalIterator(True)
        for segment in segments:
            yield segment, await asyncio.to_thread(next, reports)

    return examined
