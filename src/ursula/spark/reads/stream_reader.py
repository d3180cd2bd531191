"""Following a bucket: `spark.readStream.format("ursula")`.

A bucket has one order, so the offset of a query is one position, with the cluster and the bucket that it
belongs to. After a failure, Spark asks for the same batch again: its positions determine its contents,
whatever was flushed or merged in between.
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

from ..executor_store import ExecutorStore
from ..http_client import OFFSET_BEYOND_TAIL, POSITION_REWOUND, POSITION_TRIMMED, RequestRefused
from .options import StreamOptions
from .partitions import partitions_up_to
from .rows import read_partition
from .selection import Selection
from .view import BucketView, PositionSpan, take_view

if TYPE_CHECKING:
    import pyarrow as pa

_START_OVER = "start over with another checkpointLocation"

logger = logging.getLogger(__name__)


class WrongCheckpoint(Exception):
    """The checkpoint belongs to another cluster or bucket; the message says which, and what to do."""


class DataLost(Exception):
    """The data after the checkpoint no longer exists; the message says why, and what to do."""


class StreamOffset(NamedTuple):
    """The progress of a query: a position (-1: before everything), with its cluster and bucket."""

    cluster: str
    generation: int
    bucket: str
    position: int

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Parse an offset that Spark kept in the checkpoint."""
        try:
            return cls(
                str(given["cluster"]), int(given["generation"]), str(given["bucket"]), int(given["position"])
            )
        except (LookupError, TypeError, ValueError):
            message = f"the checkpoint has {given!r}, which is not a position of a bucket: {_START_OVER}"
            raise WrongCheckpoint(message) from None


class BucketStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what happens in a bucket, batch after batch. Spark keeps one instance for each query."""

    def __init__(self, options: StreamOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._target: int | None = None
        self._latest: StreamOffset | None = None
        self._warned: set[str] = set()
        self._known: dict[str, bool] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        after = self._options.read.after
        view = take_view(self._options.read, after)
        if self._options.from_latest and view.exists:
            after = view.position
        return self._offset(view, -1 if after is None else after)._asdict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Whether batches are limited. Spark cannot combine two kinds of limits; `latestOffset` does."""
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        if self._options.messages_max is not None:
            return ReadMaxRows(self._options.messages_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Ignore everything that happens from now on."""
        self._target = take_view(self._options.read, None).position

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends: `start` itself if nothing has happened since.

        It is never before `start`, which would repeat rows, with one exception: if the log ends before the
        checkpoint and losses are accepted, the end of the log is the next offset, after a batch without rows.
        """
        begin = StreamOffset.parse(start)
        view = self._view_after(begin)
        self._latest = self._offset(view, max(begin.position, view.position))
        if self._is_shorter(view, begin):
            return self._offset(view, view.position)._asdict()
        target = view.position if self._target is None else min(self._target, view.position)
        spans = [span for span in view.spans if span.first < target]
        if not spans or begin.position >= target:
            return start
        if not isinstance(limit, ReadAllAvailable):
            filled = (one for one in spans if self._may_have_rows(view.root, one))
            target = min(target, _end_within_limits(filled, self._options, target))
        return self._offset(view, target)._asdict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the bucket as of the last call of `latestOffset`."""
        return None if self._latest is None else self._latest._asdict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch, the same ones if the batch is repeated."""
        begin, until = StreamOffset.parse(start), StreamOffset.parse(end).position
        if until <= begin.position:
            return []
        view = self._view_after(begin)
        if view.position < until:
            self._lost(_ends_early(self._place, view, until))
        return partitions_up_to(view, min(until, view.position))

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition."""
        return read_partition(self._options.read, partition, self._columns)

    def _may_have_rows(self, root: str, span: PositionSpan) -> bool:
        """Whether a span may have wanted rows: segments have rows of many buckets."""
        if span.path is None:
            return True
        if span.path not in self._known:
            try:
                segment = ExecutorStore(root, self._options.read.s3).segment(span.path)
            except (FileNotFoundError, ValueError):
                return True  # it was merged or is damaged: the task that reads it will notice
            with segment.file:
                self._known[span.path] = bool(Selection(self._options.read).row_groups(segment.footer))
        return self._known[span.path]

    @property
    def _place(self) -> str:
        return "the store" if self._options.read.endpoint is None else "the log"

    def _offset(self, view: BucketView, position: int) -> StreamOffset:
        return StreamOffset(view.cluster, view.generation, self._options.read.bucket, position)

    def _is_shorter(self, view: BucketView, begin: StreamOffset) -> bool:
        """Whether the log has lost its end. A store that is read without its server is just behind."""
        return self._options.read.endpoint is not None and view.position < begin.position

    def _view_after(self, begin: StreamOffset) -> BucketView:
        """The view after an offset, or if data was lost, after the position at which the query continues."""
        options = self._options.read
        if begin.bucket != options.bucket:
            raise WrongCheckpoint(
                f"the checkpoint belongs to the bucket {begin.bucket!r}, but the option bucket is "
                f"{options.bucket!r}: read that bucket, or {_START_OVER}"
            )
        try:
            view = take_view(options, None if begin.position < 0 else begin.position)
        except RequestRefused as error:
            if error.code not in (POSITION_TRIMMED, POSITION_REWOUND, OFFSET_BEYOND_TAIL):
                raise
            whole = take_view(options, None)
            _check_cluster(begin, whole)
            return self._view_after_loss(begin, error, whole)
        _check_cluster(begin, view)
        return view

    def _view_after_loss(self, begin: StreamOffset, error: RequestRefused, whole: BucketView) -> BucketView:
        if error.code == OFFSET_BEYOND_TAIL:
            self._lost(_ends_early(self._place, whole, begin.position))
            return whole._replace(spans=[])
        if error.code == POSITION_TRIMMED:
            self._lost(
                f"the bucket {begin.bucket!r} was deleted after the checkpoint, at position "
                f"{begin.position}, and created again",
                "from the beginning of the new bucket",
            )
            return whole
        self._lost(
            f"a restore went back to position {error.position}, before the checkpoint at {begin.position}: "
            "whatever came in between never happened",
            "from the restore",
        )
        try:
            return take_view(self._options.read, error.position)
        except RequestRefused as again:
            if again.code != POSITION_TRIMMED:
                raise
            return whole  # the bucket was created after the restore

    def _lost(self, what: str, where: str = "from there") -> None:
        """Fail the query, unless losses are accepted."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}. To continue {where}, set failOnDataLoss to false; or {_START_OVER}")
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s; continuing %s, since failOnDataLoss is false", what, where)


def _check_cluster(begin: StreamOffset, view: BucketView) -> None:
    if begin.cluster != view.cluster:
        raise WrongCheckpoint(
            f"the checkpoint belongs to the cluster {begin.cluster}, but this is {view.cluster}, which has "
            f"other positions: read from that cluster, or {_START_OVER}"
        )


def _ends_early(place: str, view: BucketView, position: int) -> str:
    return f"{place} ends at position {view.position}, before the checkpoint at {position}"


def _end_within_limits(spans: Iterable[PositionSpan], options: StreamOptions, end: int) -> int:
    """Where a batch that reaches a limit ends: at the end of a span, and after at least one span."""
    size = rows = 0
    taken: PositionSpan | None = None
    for span in spans:
        size += span.size
        rows += span.rows
        if taken and (_is_over(size, options.bytes_max) or _is_over(rows, options.messages_max)):
            return taken.last
        taken = span
    return end


def _is_over(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit
