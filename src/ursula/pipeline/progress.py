"""How a job tells how far it is: by what it has planned, or by the tasks that Spark has done."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from ..cold.objects.ulid import new_ulid
from ..engine.offline.verify import Progress as Told

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.3
SETTLE_SECONDS = 2.0
"""Spark tells of what has ended a moment later; no job waits longer for it."""

_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

Progress = Callable[[int, int], None]
"""Told how much is done, and how much there is."""


def silent(done: int, total: int) -> None:
    """Tell nobody."""


def untold(what: str, done: int, total: int) -> None:
    """Tell nobody, where there are several kinds of work."""


@contextmanager
def tasks_told(spark: "SparkSession", steps: Sequence[str], progress: Told) -> Iterator[None]:
    """Tell how many tasks are done of what Spark does meanwhile for this thread.

    The stages of Spark follow each other: each is one of the steps, in order, and the last step is all that
    follow. `progress` is called by another thread. It is told the end of every step, if there is no error.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:  # behind Spark Connect, which tells nothing of its tasks
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
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away


class Stage(NamedTuple):
    """A stage that has begun."""

    done: int
    tasks: int


class _Watch:
    """Looks at the jobs of a group from time to time."""

    def __init__(self, context: "SparkContext", group: str, steps: Sequence[str], progress: Told) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._steps = steps
        self._progress = progress
        self._told: dict[str, Stage] = {}

    def until(self, ended: Event) -> None:
        """Tell what there is to tell, until it has ended."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        self._tell(self._steps[0], Stage(0, 0))
        with suppress(Py4JError, OSError):  # Spark is gone: who waits for it is told so
            while not ended.wait(LOOK_SECONDS):
                for step, stage in by_step(self._steps, self._stages()):
                    self._tell(step, stage)

    def finish(self) -> None:
        """Tell the end of every step."""
        latest = time.monotonic() + SETTLE_SECONDS
        while not self._has_settled() and time.monotonic() < latest:
            time.sleep(LOOK_SECONDS / 10)
        for step, stage in by_step(self._steps, self._stages()):
            self._tell(step, Stage(stage.tasks, stage.tasks))

    def _tell(self, step: str, stage: Stage) -> None:
        if self._told.get(step) != stage:
            self._told[step] = stage
            self._progress(step, stage.done, stage.tasks)

    def _has_settled(self) -> bool:
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group)]
        return bool(jobs) and all(job is not None and job.status != "RUNNING" for job in jobs)

    def _stages(self) -> list[Stage]:
        """The stages that have begun, in their order; one whose results are there is never begun again."""
        jobs = [self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group)]
        ids = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
        found = [info for info in map(self._tracker.getStageInfo, ids) if info is not None]
        return [
            Stage(info.numCompletedTasks, info.numTasks)
            for info in found
            if info.numActiveTasks or info.numCompletedTasks
        ]


def by_step(steps: Sequence[str], stages: Sequence[Stage]) -> Iterator[tuple[str, Stage]]:
    """How far each step is that has begun; those before the one that runs have ended."""
    last = len(steps) - 1
    for number, stage in enumerate(stages[:last]):
        yield steps[number], stage
    rest = stages[last:]
    if rest:
        yield steps[last], Stage(sum(stage.done for stage in rest), sum(stage.tasks for stage in rest))
