"""A bucket that is followed: `spark.readStream.format("ursula")`.

A bucket has one order, so the offset of a stream is one position, with whose it is. Spark asks for the same
batch again after a failure: its positions say what is in it, whatever was flushed or merged in between.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .options import StreamOptions
from .planning import Snapshot, Stretch, take_snapshot, tasks_up_to
from .rows import read_task
from .selection import Selection
from .server import OFFSET_BEYOND_TAIL, POSITION_REWOUND, POSITION_TRIMMED, Refused
from .store import StoreFiles

if TYPE_CHECKING:
    import pyarrow as pa

_ANEW = "begin anew with another checkpointLocation"

logger = logging.getLogger(__name__)


class WrongCheckpoint(Exception):
    """The checkpoint is not one of this bucket; the text says whose it is and what to do."""


class DataLost(Exception):
    """What comes after the checkpoint is not there any more; the text says why and what to do."""


class StreamOffset(NamedTuple):
    """Where a stream is: a position (-1: before everything), and whose it is."""

    cluster: str
    generation: int
    bucket: str
    position: int

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """An offset as Spark keeps it."""
        try:
            return cls(
                str(given["cluster"]), int(given["generation"]), str(given["bucket"]), int(given["position"])
            )
        except (LookupError, TypeError, ValueError):
            message = f"the checkpoint has {given!r}, which is no position of a bucket: {_ANEW}"
            raise WrongCheckpoint(message) from None


class BucketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what happens in a bucket, batch after batch. Spark keeps one of it for a query."""

    def __init__(self, options: StreamOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._target: int | None = None
        self._latest: StreamOffset | None = None
        self._warned: set[str] = set()
        self._known: dict[str, bool] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint."""
        after = self._options.read.after
        snapshot = take_snapshot(self._options.read, after)
        if self._options.from_latest and snapshot.is_there:
            after = snapshot.position
        return self._offset(snapshot, -1 if after is None else after)._asdict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells Spark whether there are goals: it has no limit of two kinds, so `latestOffset` knows them."""
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        if self._options.messages_max is not None:
            return ReadMaxRows(self._options.messages_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, nothing is new."""
        self._target = take_snapshot(self._options.read, None).position

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: `start` itself if nothing happened after it.

        Never before it, which would repeat rows, but for one case: of a log that ends before its checkpoint
        the end is the next offset, after a batch without rows, if the loss is accepted.
        """
        begin = StreamOffset.parse(start)
        snapshot = self._snapshot_after(begin)
        self._latest = self._offset(snapshot, max(begin.position, snapshot.position))
        if self._is_shorter(snapshot, begin):
            return self._offset(snapshot, snapshot.position)._asdict()
        target = snapshot.position if self._target is None else min(self._target, snapshot.position)
        stretches = [stretch for stretch in snapshot.stretches if stretch.first < target]
        if not stretches or begin.position >= target:
            return start
        if not isinstance(limit, ReadAllAvailable):
            filled = (one for one in stretches if self._may_have_rows(snapshot.root, one))
            target = min(target, _end_of_goals(filled, self._options, target))
        return self._offset(snapshot, target)._asdict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far there was something to read when Spark asked last."""
        return None if self._latest is None else self._latest._asdict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task reads of a batch, the first time or again."""
        begin, until = StreamOffset.parse(start), StreamOffset.parse(end).position
        if until <= begin.position:
            return []
        snapshot = self._snapshot_after(begin)
        if snapshot.position < until:
            self._lost(_ends_early(self._place, snapshot, until))
        return tasks_up_to(snapshot, min(until, snapshot.position))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition."""
        return read_task(self._options.read, partition, self._columns)

    def _may_have_rows(self, root: str, stretch: Stretch) -> bool:
        """Whether a stretch may have rows that are wanted: segments have those of many buckets."""
        if stretch.path is None:
            return True
        if stretch.path not in self._known:
            try:
                segment = StoreFiles(root, self._options.read.s3).segment(stretch.path)
            except (FileNotFoundError, ValueError):
                return True  # merged meanwhile, or damaged: whoever reads it finds out
            with segment.file:
                self._known[stretch.path] = bool(Selection(self._options.read).row_groups(segment.footer))
        return self._known[stretch.path]

    @property
    def _place(self) -> str:
        return "the store" if self._options.read.endpoint is None else "the log"

    def _offset(self, snapshot: Snapshot, position: int) -> StreamOffset:
        return StreamOffset(snapshot.cluster, snapshot.generation, self._options.read.bucket, position)

    def _is_shorter(self, snapshot: Snapshot, begin: StreamOffset) -> bool:
        """Whether the log lost its end. A store that is read without its server is only late."""
        return self._options.read.endpoint is not None and snapshot.position < begin.position

    def _snapshot_after(self, begin: StreamOffset) -> Snapshot:
        """What happened after an offset, or after where it goes on when something is lost."""
        options = self._options.read
        if begin.bucket != options.bucket:
            raise WrongCheckpoint(
                f"the checkpoint is of the bucket {begin.bucket!r}, and the option bucket is "
                f"{options.bucket!r}: read that bucket, or {_ANEW}"
            )
        try:
            snapshot = take_snapshot(options, None if begin.position < 0 else begin.position)
        except Refused as error:
            if error.code not in (POSITION_TRIMMED, POSITION_REWOUND, OFFSET_BEYOND_TAIL):
                raise
            whole = take_snapshot(options, None)
            _check_cluster(begin, whole)
            return self._snapshot_after_loss(begin, error, whole)
        _check_cluster(begin, snapshot)
        return snapshot

    def _snapshot_after_loss(self, begin: StreamOffset, error: Refused, whole: Snapshot) -> Snapshot:
        if error.code == OFFSET_BEYOND_TAIL:
            self._lost(_ends_early(self._place, whole, begin.position))
            return whole._replace(stretches=[])
        if error.code == POSITION_TRIMMED:
            self._lost(
                f"the bucket {begin.bucket!r} was deleted after the checkpoint, at position "
                f"{begin.position}, and made again",
                "from the beginning of the bucket that is there now",
            )
            return whole
        self._lost(
            f"a restore went back to position {error.position}, behind the checkpoint at {begin.position}: "
            "what came between them has not happened",
            "from the restore on",
        )
        try:
            return take_snapshot(self._options.read, error.position)
        except Refused as again:
            if again.code != POSITION_TRIMMED:
                raise
            return whole  # the bucket was made after the restore

    def _lost(self, what: str, where: str = "from there") -> None:
        """The end of the query, unless losses are accepted."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}. To go on {where}, set failOnDataLoss to false; or {_ANEW}")
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s; going on %s, as failOnDataLoss is false", what, where)


def _check_cluster(begin: StreamOffset, snapshot: Snapshot) -> None:
    if begin.cluster != snapshot.cluster:
        raise WrongCheckpoint(
            f"the checkpoint is of the cluster {begin.cluster}, and this is {snapshot.cluster}, which has "
            f"other positions: read from that cluster, or {_ANEW}"
        )


def _ends_early(place: str, snapshot: Snapshot, position: int) -> str:
    return f"{place} ends at position {snapshot.position}, before the checkpoint at {position}"


def _end_of_goals(stretches: Iterable[Stretch], options: StreamOptions, end: int) -> int:
    """Where a batch ends that has as much as it should: at the end of a stretch, and never of none."""
    size = rows = 0
    taken: Stretch | None = None
    for stretch in stretches:
        size += stretch.size
        rows += stretch.rows
        if taken and (_is_over(size, options.bytes_max) or _is_over(rows, options.messages_max)):
            return taken.last
        taken = stretch
    return end


def _is_over(count: int, goal: int | None) -> bool:
    return goal is not None and count > goal
