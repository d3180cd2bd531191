"""Ranges of messages: what messages in memory and those in a segment have in common.

Both are consecutive messages of one stream, known by the offsets at which they end. They differ only in how
their bytes are kept. This module imports no other part of Ursula, so that the model, the store and Spark
executors can share it.
"""

from array import array
from bisect import bisect_left, bisect_right


class MessageRange:
    """Consecutive messages that begin at the offset `start`; `ends` has the offset after each of them.

    `append_ends` has the offset after each append; None if every append is one message.
    """

    __slots__ = ()

    start: int
    ends: "array[int]"
    append_ends: "array[int] | None"

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.ends[-1] if self.ends else self.start

    def is_boundary(self, offset: int) -> bool:
        """Whether a message begins or ends at the offset."""
        if offset == self.start:
            return True
        index = bisect_left(self.ends, offset)
        return index < len(self.ends) and self.ends[index] == offset

    def count_before(self, offset: int) -> int:
        """How many of the messages end at or before the offset."""
        return bisect_right(self.ends, offset)

    def append_end_after(self, offset: int) -> int:
        """Where the append with the byte at the offset ends in this range; at the end, the offset itself."""
        ends = self.ends if self.append_ends is None else self.append_ends
        index = bisect_right(ends, offset)
        return ends[index] if index < len(ends) else offset

    def message_ends(self, offset: int, limit: int) -> "array[int]":
        """The ends of the messages between the offset and the limit."""
        return self.ends[bisect_right(self.ends, offset) : bisect_right(self.ends, limit)]

    def cut(
        self, offset: int, limit: int, bytes_max: int, whole: bool, is_first: bool
    ) -> tuple[int, int, int]:
        """How far to read from an offset up to a limit, about `bytes_max` bytes: (first, last, stop).

        The bytes from `offset` up to `stop` are to be read; there are none if both are equal. `first` is the
        number of the message with the first of these bytes; messages before `last` end at or before `stop`.

        With `whole`, no message is cut, and a message is read however large it is if nothing was
        read before it (`is_first`). Otherwise, exactly `bytes_max` bytes are read if there are that many.
        """
        ends = self.ends
        end = ends[-1] if ends else self.start
        limit = end if end < limit else limit
        if offset >= limit:
            return 0, 0, offset
        stop = offset + bytes_max
        stop = limit if limit < stop else stop
        first = bisect_right(ends, offset)
        last = bisect_right(ends, stop, first)
        if whole and stop < limit:
            if last > first:
                stop = ends[last - 1]
            elif is_first:
                stop = min(ends[first], limit)
                last = bisect_right(ends, stop, first)
            else:
                stop = offset
        return first, last, stop
