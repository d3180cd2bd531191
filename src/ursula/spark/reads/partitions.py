"""A view divided among tasks. A partition is a logical range of positions; the file names in it are hints."""

from collections.abc import Iterable, Iterator

from pyspark.sql.datasource import InputPartition

from .options import ReadOptions
from .view import BucketView, PositionSpan, bounded_view

COLD_BYTES = 32 << 20
HOT_BYTES = 16 << 20


class ReadPartition(InputPartition):
    """A part of the history for one task: the positions after `after` and up to `until`."""

    def __init__(self, root: str, after: int, until: int, spans: list[PositionSpan]) -> None:
        self.root = root
        self.after = after
        self.until = until
        self.spans = spans


def partitions_of(options: ReadOptions) -> list[ReadPartition]:
    """The partitions of a batch read."""
    view = bounded_view(options)
    return partitions_up_to(view, view.position)


def partitions_up_to(view: BucketView, until: int) -> list[ReadPartition]:
    """The partitions of a view up to a position."""
    wanted = [span for span in view.spans if span.first < until]
    return [ReadPartition(view.root, view.after, until, spans) for spans in _divided(wanted)]


def _divided(spans: Iterable[PositionSpan]) -> Iterator[list[PositionSpan]]:
    """Groups of neighbours for one task each; smaller if hot, since a single server sends those."""
    taken: list[PositionSpan] = []
    size = 0
    for span in spans:
        limit = HOT_BYTES if span.path is None else COLD_BYTES
        changes = taken and (taken[-1].path is None) != (span.path is None)
        if taken and (changes or size + span.size > limit):
            yield taken
            taken, size = [], 0
        taken.append(span)
        size += span.size
    if taken:
        yield taken
