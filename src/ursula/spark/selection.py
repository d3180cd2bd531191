"""Which rows are wanted: of some streams, positions and times. Row groups without any are not read."""

import fnmatch
import re
from bisect import bisect_left

import pyarrow as pa
import pyarrow.compute as pc

from ..cold.segment import Span
from .options import ReadOptions

_WILD = re.compile(r"[*?\[]")
_LAST = "\U0010ffff"


class Selection:
    """The rows of a bucket that the options ask for."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._names = options.streams
        self._match = None
        self._first, self._last = "", _LAST
        if options.stream_prefix is not None:
            self._first, self._last = options.stream_prefix, options.stream_prefix + _LAST
        elif options.stream_glob is not None:
            self._match = re.compile(fnmatch.translate(options.stream_glob)).match
            wild = _WILD.search(options.stream_glob)
            literal = options.stream_glob[: wild.start()] if wild else options.stream_glob
            self._first, self._last = literal, literal + _LAST if wild else literal

    def may_have(self, span: Span) -> bool:
        """Whether a row group may have rows that are wanted."""
        bucket = self._options.bucket
        if not span.first[0] <= bucket <= span.last[0]:
            return False
        first = span.first[1] if span.first[0] == bucket else ""
        last = span.last[1] if span.last[0] == bucket else _LAST
        if self._names is not None:
            index = bisect_left(self._names, first)
            return index < len(self._names) and self._names[index] <= last
        return first <= self._last and self._first <= last

    def rows(self, batch: pa.RecordBatch, after: int, until: int) -> pa.RecordBatch:
        """The rows of a batch that are wanted; it has the columns that this takes."""
        options = self._options
        masks = [
            pc.equal(batch["bucket"], options.bucket),
            pc.greater(batch["position"], after),
            pc.less_equal(batch["position"], until),
        ]
        if not options.include_events:
            masks.append(pc.equal(batch["kind"], "append"))
        if options.starting_ms is not None:
            masks.append(pc.greater_equal(batch["appended_at"], _time(options.starting_ms)))
        if options.ending_ms is not None:
            masks.append(pc.less(batch["appended_at"], _time(options.ending_ms)))
        if self._names is not None or self._match is not None or options.stream_prefix is not None:
            masks.append(self._of_streams(batch["stream"]))
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return batch if mask.true_count == batch.num_rows else batch.filter(mask)

    def columns(self) -> set[str]:
        """What `rows` takes."""
        columns = {"bucket", "position", "kind", "stream"}
        if self._options.starting_ms is not None or self._options.ending_ms is not None:
            columns.add("appended_at")
        return columns

    def _of_streams(self, streams: pa.Array) -> pa.Array:
        encoded = streams.dictionary_encode()
        wanted = pa.array([self._is_wanted(name) for name in encoded.dictionary.to_pylist()], pa.bool_())
        return wanted.take(encoded.indices)

    def _is_wanted(self, name: str | None) -> bool:
        if name is None:
            return False
        if self._names is not None:
            return name in self._names
        if self._match is not None:
            return self._match(name) is not None
        return name.startswith(self._first)


def _time(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
