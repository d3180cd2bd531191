"""How a job reports its progress: by the steps of its plan, or by the tasks that Spark has finished."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from ..cold.objects.ulid import new_ulid
from ..engine.offline.verify import Progress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.3
SETTLE_SECONDS = 2.0
"""Spark reports the end of a stage with a delay; a job waits for that no longer than this."""

_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

CountProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is to do."""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


def no_step_progress(what: str, done: int, total: int) -> None:
    """Report nothing, for jobs with several steps."""


@contextmanager
def report_tasks(spark: "SparkSession", steps: Sequence[str], progress: Progress) -> Iterator[None]:
    """Report how many of the tasks that Spark runs for this thread inside the `with` block are finished.

    Spark's stages follow one another. Each stage is one of the steps, in order; all remaining stages are the
    last step. Another thread calls `progress`. Unless there is an error, it is called at the end of every
    step.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:  # Spark Connect, which reports nothing about its tasks
        progress(steps[0], 0, 0)
        yield
        return
    before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    group = f"ursula-{new_ulid()}"
    context.setJobGroup(group, steps[-1])
    watch, ended = _Watch(context, group, steps, progress), Event()
    watcher = Thread(target=watch.until, args=(ended,), name="ursula-progress", daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            ended.set()
            watcher.join()
        watch.finish()
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


class Stage(NamedTuple):
    """A stage that has begun: how many of its tasks are finished, and how many it has."""

    done: int
    tasks: int


class _Watch:
    """Polls the jobs of a Spark job group from time to time."""

    def __init__(self, context: "SparkContext", group: str, steps: Sequence[str], progress: Progress) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._steps = steps
        self._progress = progress
        self._reported: dict[str, Stage] = {}

    def until(self, ended: Event) -> None:
        """Report progress until the work has ended."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        self._report(self._steps[0], Stage(0, 0))
        with suppress(Py4JError, OSError):  # Spark is gone: the thread that waits for it gets the error
            while not ended.wait(POLL_SECONDS):
                for step, stage in by_step(self._steps, self._stages()):
                    self._report(step, stage)

    def finish(self) -> None:
        """Report the end of every step."""
        latest = time.monotonic() + SETTLE_SECONDS
        while not self._has_settled() and time.monotonic() < latest:
            time.sleep(POLL_SECONDS / 10)
        for step, stage in by_step(self._steps, self._stages()):
            self._report(step, Stage(stage.tasks, stage.tasks))

    def _report(self, step: str, stage: Stage) -> None:
        if self._reported.get(step) != stage:
            self._reported[step] = stage
            self._progress(step, stage.done, stage.tasks)

    def _has_settled(self) -> bool:
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group)]
        return bool(jobs) and all(job is not None and job.status != "RUNNING" for job in jobs)

    def _stages(self) -> list[Stage]:
        """The stages that have begun, in order. Spark skips a stage whose results already exist."""
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group)]
        ids = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
        found = [info for info in map(self._tracker.getStageInfo, ids) if info is not None]
        return [
            Stage(info.numCompletedTasks, info.numTasks)
            for info in found
            if info.numActiveTasks or info.numCompletedTasks
        ]


def by_step(steps: Sequence[str], stages: Sequence[Stage]) -> Iterator[tuple[str, Stage]]:
    """The progress of each step that has begun. All steps before the last of them have ended."""
    last = len(steps) - 1
    for number, stage in enumerate(stages[:last]):
        yield steps[number], stage
    rest = stages[last:]
    if rest:
        yield steps[last], Stage(sum(stage.done for stage in rest), sum(stage.tasks for stage in rest))
