"""The messages of one stream that are in memory: their bytes, where each ends, and where each append ends.

A binary append is one message; a JSON append is one message per value.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from ...ranges import MessageRange
from .blob_slice import BlobSlice

Payload = bytes | BlobSlice


class Messages(MessageRange):
    """Consecutive messages that begin at the offset `start`."""

    __slots__ = ("append_ends", "ends", "has_slices", "payloads", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.payloads: list[Payload] = []
        self.has_slices = False  # whether some are slices of blobs, so their bytes are not in memory
        self.ends = array("Q")
        self.append_ends: array[int] | None = None  # None while every append was one message

    def add(self, payloads: Sequence[Payload]) -> int:
        """Add the messages of one append and return the offset after them."""
        ends = self.ends
        if not ends and len(payloads) == 1:
            # Many streams have just one message for a long time: allocate containers of exactly that size.
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
        """Add the message of one append and return the offset after it."""
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
        """Add the messages of several appends (`counts` messages each) and return the offset after them."""
        end, first = self.end, 0
        for count in counts:
            end = self.add(payloads[first : first + count])
            first += count
        return end

    def drop_before(self, offset: int, count_max: int | None = None) -> int:
        """Drop the messages that end at or before the offset, which is a boundary; return how many.

        With `count_max`, drop at most that many, the first ones.
        """
        count = bisect_right(self.ends, offset)
        if count_max is not None and count > count_max:
            count = count_max
            offset = self.ends[count - 1]
        if count:
            loses_slices = self.has_slices and any(
                type(payload) is BlobSlice for payload in self.payloads[:count]
            )
            del self.payloads[:count]
            self.ends = self.ends[count:]
            if self.append_ends is not None:
                ends = self.append_ends[bisect_right(self.append_ends, offset) :]
                self.append_ends = ends or None  # with nothing left, `add` starts as in a new stream
            if loses_slices:
                self.has_slices = any(type(payload) is BlobSlice for payload in self.payloads)
        self.start = max(self.start, offset)
        return count

    def read(self, offset: int, limit: int, bytes_max: int, whole: bool, into: list[Payload]) -> int:
        """Add messages between offset and limit to `into`, about `bytes_max` bytes; return where they end.

        With `whole`, no message is cut, and if `into` is empty, the first one is added however large it is.
        """
        first, last, stop = self.cut(offset, limit, bytes_max, whole, not into)
        if stop == offset:
            return offset
        ends, payloads = self.ends, self.payloads
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
