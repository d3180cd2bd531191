"""The rows that a read selects, by stream, position and time. Row groups without any are not read."""

import re
from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ...cold.segment.footer import Footer
from .condition import Condition, bounds_of
from .glob_pattern import glob_pattern, literal_prefix
from .options import ReadOptions


def conditions_of(options: ReadOptions) -> Iterator[Condition]:
    """The conditions that the options imply, without positions. Of a glob, only the literal prefix counts."""
    yield Condition("bucket", "=", options.bucket)
    if not options.include_events:
        yield Condition("kind", "=", "append")
    if options.starting_ms is not None:
        yield Condition("appended_at", ">=", options.starting_ms * 1000)
    if options.ending_ms is not None:
        yield Condition("appended_at", "<", options.ending_ms * 1000)
    if options.streams is not None:
        yield Condition("stream", "in", options.streams)
    if options.stream_prefix is not None:
        yield Condition("stream", "starts", options.stream_prefix)
    if options.stream_glob is not None:
        yield Condition("stream", "starts", literal_prefix(options.stream_glob))


class Selection:
    """Selects the rows of a bucket that the options ask for."""

    def __init__(self, options: ReadOptions) -> None:
        self._conditions = list(conditions_of(options))
        glob = options.stream_glob
        self._match = None if glob is None else re.compile(glob_pattern(glob)).fullmatch

    def row_groups(self, footer: Footer) -> list[int]:
        """The row groups of a segment that may have wanted rows."""
        metadata = footer.metadata
        return [
            number for number in range(metadata.num_row_groups) if self._may_have(metadata.row_group(number))
        ]

    def rows(self, batch: pa.RecordBatch, after: int, until: int) -> pa.RecordBatch:
        """The wanted rows of a batch, which must have the columns of `columns()`."""
        masks = [pc.greater(batch["position"], after), pc.less_equal(batch["position"], until)]
        masks += [condition.mask(batch[condition.column]) for condition in self._conditions]
        if self._match is not None:
            masks.append(self._matching(batch["stream"]))
        mask = reduce(pc.and_, masks)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)

    def columns(self) -> set[str]:
        """The columns that `rows` needs."""
        return {"position", "stream", *(condition.column for condition in self._conditions)}

    def _may_have(self, row_group: object) -> bool:
        bounds = bounds_of(row_group)
        return all(
            condition.may_pass(bounds[condition.column])
            for condition in self._conditions
            if condition.column in bounds
        )

    def _matching(self, streams: pa.Array) -> pa.Array:
        encoded = streams.dictionary_encode()
        wanted = pa.array([self._is_match(name) for name in encoded.dictionary.to_pylist()], pa.bool_())
        return wanted.take(encoded.indices)

    def _is_match(self, name: str | None) -> bool:
        return name is not None and self._match is not None and self._match(name) is not None
