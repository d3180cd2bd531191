"""The messages of one stream that are in memory: their bytes, where each ends, and in which append it came.

A binary append is one message; a JSON append is one message per value.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from .blob_slice import BlobSlice

Payload = bytes | BlobSlice


class Messages:
    """Consecutive messages that begin at the offset `start`."""

    __slots__ = ("append_ends", "ends", "has_parts", "payloads", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.payloads: list[Payload] = []
        self.has_parts = False  # whether some are not in memory themselves
        self.ends = array("Q")
        self.append_ends: array[int] | None = None  # None while every append was one message

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.ends[-1] if self.ends else self.start

    def add(self, payloads: Sequence[Payload]) -> int:
        """Add the messages of one append and return the offset after them."""
        ends = self.ends
        if not ends and len(payloads) == 1:
            # Many streams hold one message for long: containers of just that size.
            end = self.start + len(payloads[0])
            self.payloads = [payloads[0]]
            self.ends = array("Q", (end,))
            return end
        end = ends[-1] if ends else self.start
        if len(payloads) > 1 and self.append_ends is None:
            self.append_ends = array("Q", ends)
        for payload in payloads:
            end += len(payload)
            ends.append(end)
            self.payloads.append(payload)
        if self.append_ends is not None:
            self.append_ends.append(end)
        return end

    def add_one(self, payload: Payload) -> int:
        """The same for an append of one message."""
        ends = self.ends
        if not ends:
            return self.add((payload,))
        end = ends[-1] + len(payload)
        ends.append(end)
        self.payloads.append(payload)
        if self.append_ends is not None:
            self.append_ends.append(end)
        return end

    def add_batch(self, payloads: Sequence[Payload], counts: tuple[int, ...]) -> int:
        """Add the messages of several appends, so many each, and return the offset after them."""
        end, first = self.end, 0
        for count in counts:
            end = self.add(payloads[first : first + count])
            first += count
        return end

    def drop_before(self, offset: int, count_max: int | None = None) -> int:
        """Forget the messages that end at or before the offset, which is a boundary; return how many.

        With `count_max`, no more than so many: the first ones.
        """
        count = bisect_right(self.ends, offset)
        if count_max is not None and count > count_max:
            count = count_max
            offset = self.ends[count - 1]
        if count:
            loses_parts = self.has_parts and any(
                type(payload) is BlobSlice for payload in self.payloads[:count]
            )
            del self.payloads[:count]
            self.ends = self.ends[count:]
            if self.append_ends is not None:
                ends = self.append_ends[bisect_right(self.append_ends, offset) :]
                self.append_ends = ends or None  # with nothing left, `add` begins as with a new stream
            if loses_parts:
                self.has_parts = any(type(payload) is BlobSlice for payload in self.payloads)
        self.start = max(self.start, offset)
        return count

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
        """Where the append ends that holds the byte at the offset; the offset itself at the tail."""
        ends = self.ends if self.append_ends is None else self.append_ends
        index = bisect_right(ends, offset)
        return ends[index] if index < len(ends) else offset

    def message_ends(self, offset: int, limit: int) -> "array[int]":
        """The ends of the messages that lie between the offset and the limit."""
        return self.ends[bisect_right(self.ends, offset) : bisect_right(self.ends, limit)]

    def read(self, offset: int, limit: int, bytes_max: int, whole: bool, into: list[Payload]) -> int:
        """Add what lies between offset and limit to `into`, about `bytes_max` of it; return where it ends.

        With `whole`, messages are not cut for size, and one is taken however large it is if `into` is empty.
        Without, exactly `bytes_max` bytes are taken where there are as many.
        """
        ends, payloads = self.ends, self.payloads
        limit = min(limit, self.end)
        if offset >= limit:
            return offset
        stop = min(limit, offset + bytes_max)
        first = bisect_right(ends, offset)
        last = bisect_right(ends, stop, first)  # messages first..last-1 end at or before the stop
        if whole and stop < limit:
            if last > first:
                stop = ends[last - 1]
            elif into:
                return offset
            else:
                stop = min(ends[first], limit)
                last = bisect_right(ends, stop, first)
        begin = ends[first - 1] if first else self.start
        if last == first:
            into.append(payloads[first][offset - begin : stop - begin])
            return stop
        if begin == offset:
            into.extend(payloads[first:last])
        else:
            into.append(payloads[first][offset - begin :])
            into.extend(payloads[first + 1 : last])
        end = ends[last - 1]
        if end < stop:
            into.append(payloads[last][: stop - end])
        return stop
